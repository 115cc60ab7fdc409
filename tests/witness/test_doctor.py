"""`outrider doctor`: each check sees what it is there for, and never calls the unknown healthy."""

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

from detectors.witness import doctor, doctor_settings
from detectors.witness.doctor import Finding, Patient
from detectors.witness.doctor_folders import snapshot_folder
from outrider.config.agent import AgentSection
from outrider.config.alerts import AlertsConfig
from outrider.config.fleet import FleetSection, NodeEntry
from outrider.config.ledger import LedgerSection
from outrider.config.security import SecuritySection, write_secret
from outrider.config.site import Config, SiteSection
from outrider.config.snapshots import SnapshotsSection
from outrider.config.targets import Target
from outrider.config.witness import Member, WitnessSection


@pytest.fixture
def closed_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@pytest.fixture
def patient(tmp_path: Path, closed_port: int) -> Patient:
    for name in ("heartbeat", "agent"):
        write_secret(tmp_path / name)
    node = NodeEntry(node="n1", address="127.0.0.1", gpus=1)
    sections: dict[str, msgspec.Struct] = {
        "site": SiteSection(),
        "fleet": FleetSection(nodes=(node,)),
        "agent": AgentSection(run_dir=str(tmp_path), udp_port=closed_port, closed_port=closed_port),
        "security": SecuritySection(heartbeat_key_file=str(tmp_path / "heartbeat"), agent_token_file=str(tmp_path / "agent")),
        "snapshots": SnapshotsSection(root=str(tmp_path)),
        "witness": WitnessSection(members=()),
        "ledger": LedgerSection(),
        "alerts": AlertsConfig(),
    }
    return Patient(config=Config(sections, None), node=node, name="n1")


def changed(patient: Patient, **sections: msgspec.Struct) -> Patient:
    return Patient(config=Config({**patient.config.sections, **sections}, None), node=patient.node, name=patient.name)


def states(findings: Iterator[Finding]) -> list[str]:
    return [finding.state for finding in findings]


def test_a_sound_node_passes_what_can_be_known(patient: Patient) -> None:
    found = {finding.check: finding.state for finding in doctor.examine(patient.config, "n1")}
    assert found["node"] == found["secrets"] == found["snapshots"] == found["closed port"] == found["agent port"] == "ok"
    assert found["witnesses"] == "fail"
    assert found["cards"] in ("unknown", "fail", "ok")


@pytest.mark.parametrize(
    ("name", "state", "told"),
    [(None, "unknown", "no --node"), ("n7", "fail", "not in \\[fleet\\] \\(known: n1"), ("n1", "ok", "127.0.0.1")],
)
def test_the_node_must_be_known(patient: Patient, name: str | None, state: str, told: str) -> None:
    import re

    finding = next(one for one in doctor.examine(patient.config, name) if one.check == "node")
    assert finding.state == state
    assert re.search(told, finding.text)


def test_an_address_of_another_machine_is_told(patient: Patient) -> None:
    stranger = Patient(config=patient.config, node=NodeEntry(node="n1", address="192.0.2.1"), name="n1")
    assert states(doctor._node(stranger)) == ["fail"]


def test_a_secret_open_to_everybody_is_told(patient: Patient, tmp_path: Path) -> None:
    (tmp_path / "agent").chmod(0o644)
    assert states(doctor_settings.secret_files(patient)) == ["ok", "fail"]


def test_a_token_of_people_is_looked_at_where_it_is(patient: Patient, tmp_path: Path) -> None:
    """A node has none, and that is right; one that is there and no token would fail at the first command."""
    section = msgspec.structs.replace(
        patient.config.get(SecuritySection),
        operator_token_file=str(tmp_path / "operator"),
        viewer_token_file=str(tmp_path / "viewer"),
    )
    assert states(doctor_settings.secret_files(changed(patient, security=section))) == ["ok", "ok"]
    write_secret(tmp_path / "viewer")
    (tmp_path / "operator").write_text("swordfish\n")
    (tmp_path / "operator").chmod(0o600)
    found = list(doctor_settings.secret_files(changed(patient, security=section)))
    assert [finding.state for finding in found] == ["ok", "ok", "fail", "ok"]
    assert "operator:1: is not hexadecimal" in found[2].text and "swordfish" not in found[2].text


@pytest.mark.parametrize("mode", ["advise", "act"])
def test_a_mode_that_acts_wants_somebody_who_carries_orders_out(patient: Patient, mode: Any) -> None:
    """Without one every restart is a dead letter; the mode alone looked well."""
    acting = changed(patient, site=SiteSection(mode=mode))
    assert states(doctor_settings.targets(patient)) == [], "nothing is ordered in mode observe"
    pager = Target(name="pager", url="http://127.0.0.1:9/", types=("incident.confirmed",))
    for told in ((), (pager,)):
        assert states(doctor_settings.targets(changed(acting, alerts=AlertsConfig(targets=told)))) == ["warn"]
    scheduler = Target(name="scheduler", url="http://127.0.0.1:9/")
    (found,) = doctor_settings.targets(changed(acting, alerts=AlertsConfig(targets=(pager, scheduler))))
    assert found.state == "ok" and "scheduler" in found.text and "pager" not in found.text


def test_a_snapshot_folder_that_is_not_there_fails_and_none_at_all_warns(patient: Patient, tmp_path: Path) -> None:
    assert states(snapshot_folder(changed(patient, snapshots=SnapshotsSection(root=str(tmp_path / "no"))))) == ["fail"]
    assert states(snapshot_folder(changed(patient, snapshots=SnapshotsSection()))) == ["warn"]


def test_the_snapshot_check_leaves_nothing_behind(patient: Patient, tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    assert states(snapshot_folder(patient)) == ["ok"]
    assert sorted(tmp_path.iterdir()) == before


def test_a_closed_port_on_which_somebody_listens_is_told(patient: Patient) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as squatter:
        squatter.bind(("127.0.0.1", 0))
        agent = AgentSection(udp_port=1, closed_port=squatter.getsockname()[1])
        assert states(doctor._ports(changed(patient, agent=agent)))[1] == "fail"


@pytest.mark.parametrize(
    ("status", "state", "told"), [(200, "ok", "answers in"), (401, "fail", "agents' token"), (404, "fail", "HTTP 404")]
)
def test_a_witness_is_asked_as_an_agent_would(patient: Patient, status: int, state: str, told: str) -> None:
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        member = Member(name="w1", http_port=server.server_port, heartbeat_port=1)
        finding = doctor._ask(member, "token", "n1")
        thread.join()
    assert finding.state == state
    assert told in finding.text


def test_without_a_quorum_of_witnesses_it_fails(patient: Patient, closed_port: int) -> None:
    members = tuple(Member(name=f"w{index}", http_port=closed_port, heartbeat_port=1) for index in range(3))
    found = list(doctor._witness_answers(changed(patient, witness=WitnessSection(members=members))))
    assert [finding.check for finding in found if finding.state == "fail"][-1] == "quorum"


def test_witnesses_that_fall_together_are_told(patient: Patient) -> None:
    members = tuple(Member(name=f"w{index}", http_port=1, heartbeat_port=1, address="10.0.0.1") for index in range(3))
    assert states(doctor_settings.witnesses(changed(patient, witness=WitnessSection(members=members)))) == ["warn"]
    assert states(doctor_settings.witnesses(changed(patient, witness=WitnessSection(members=members, shared_vantage_ok=True)))) == [
        "ok"
    ]
    assert states(doctor_settings.witnesses(changed(patient, witness=WitnessSection(members=members[:2])))) == ["warn", "warn"]
