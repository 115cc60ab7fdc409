"""The sections that agents and witnesses share: wrong values are told, secrets are guarded."""

from pathlib import Path
from typing import get_type_hints

import pytest

from outrider.config.agent import AgentSection
from outrider.config.fleet import FleetSection
from outrider.config.ledger import LedgerSection
from outrider.config.loader import ConfigError, load_sections
from outrider.config.policy import PolicySection
from outrider.config.security import SecuritySection, write_secret
from outrider.config.site import SiteSection, read_config
from outrider.errors import InputError

SECTIONS = {"site": SiteSection, "fleet": FleetSection, "agent": AgentSection, "security": SecuritySection,
            "policy": PolicySection}  # fmt: skip


def load(tmp_path: Path, text: str) -> dict:
    path = tmp_path / "outrider.toml"
    path.write_text(text)
    return load_sections(path, SECTIONS)


def test_a_fleet_is_read(tmp_path: Path) -> None:
    loaded = load(
        tmp_path,
        """
[fleet]
spares = ["n2"]
[[fleet.nodes]]
node = "n1"
address = "10.0.0.1"
gpus = 8
nics = {mlx5_0 = "leaf1"}
[[fleet.nodes]]
node = "n2"
""",
    )
    fleet = loaded["fleet"].fleet(("w1",))
    assert [node.node for node in fleet.nodes] == ["n1", "n2"]
    assert fleet.nodes[0].nics == {"mlx5_0": "leaf1"}
    assert fleet.spares == ("n2",)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[fleet]\nspares = ["n9"]', "spares that are no nodes: n9"),
        ('[[fleet.nodes]]\nnode = "a"\n[[fleet.nodes]]\nnode = "a"', "nodes named twice: a"),
        ('[[fleet.nodes]]\nnode = "a"\nadress = "x"', "adress"),
        ("[agent]\nheartbeat_seconds = 0.0", "allowed: 0.05 to 60 seconds"),
        ("[agent]\nudp_port = 70000", "allowed: 0 to 65535"),
        ('[site]\nmode = "kill"', "site.mode"),
        *((f"[[fleet.nodes]]\nnode = {name!r}", "no scheduler could be told of") for name in ("", "-x", "a b", "../x", "a/b")),
    ],
)
def test_a_wrong_value_is_told(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        load(tmp_path, text)


@pytest.mark.parametrize("value", ["-1", "nan", "inf", "-inf"])
@pytest.mark.parametrize("key", [name for name, kind in get_type_hints(PolicySection).items() if kind in (int, float)])
def test_no_number_of_the_policy_switches_a_brake_or_a_limit_off_by_being_none(tmp_path: Path, key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=key):
        load(tmp_path, f"[policy]\n{key} = {value}")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[policy.faults."gpu.termal"]\nmode = "observe"', r"'gpu.termal' \(nearest: gpu.thermal"),
        ('[policy.groups.lab]\nmode = "observe"', "groups.lab: a group says its nodes and its mode"),
        ('[policy.groups.lab]\nnodes = ["n1"]', "groups.lab: a group says its nodes and its mode"),
        ('[policy.groups.lab]\nnodes = ["n1"]\nmode = "observe"\nhung_after_seconds = 9.0', "groups.lab.hung_after_seconds"),
        ('[policy.jobs.llm]\nmode = "observe"\nnodes = ["n1"]', "jobs.llm.nodes"),
    ],
)
def test_a_rule_of_the_policy_that_is_about_nothing_is_told(tmp_path: Path, text: str, told: str) -> None:
    """Else it would be believed to hold."""
    with pytest.raises(ConfigError, match=told):
        load(tmp_path, text)


@pytest.mark.parametrize("backend", ["etcd", "sqlite"])
@pytest.mark.parametrize("prefix", ["", "/", "//", " / "])
def test_the_whole_of_etcd_is_no_ledger(prefix: str, backend: str, tmp_path: Path) -> None:
    """An empty prefix would show a ledger that is empty, or another program's keys. SQLite has none."""
    path = tmp_path / "site.toml"
    path.write_text(f'[ledger]\nbackend = "{backend}"\nprefix = "{prefix}"\n')
    if backend == "sqlite":
        assert read_config(path).get(LedgerSection).backend == "sqlite"
        return
    with pytest.raises(ConfigError) as error:
        read_config(path)
    assert str(error.value).startswith(f"{path}:3: ledger.prefix: must be ")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[agent]\nusers = []\nudp_port = 70000", ":3: agent.udp_port: is 70000; allowed"),
        ('[[alerts.targets]]\nname = "a"\nurl = "ftp://x"', ":3: alerts.targets[0].url: must start with"),
        ('[ledger]\nbackend = "etcd"\nendpoints = []', ":3: ledger.endpoints: etcd needs"),
        ('[[witness.members]]\nname = "w"\nheartbeat_port = 1\nhttp_port = 0', ":4: witness.members[0].http_port: must be 1.."),
        ('[fleet]\nspares = ["n9"]', ":1: fleet: spares that are no nodes: n9"),
    ],
)
def test_a_value_that_does_not_fit_is_told_with_its_own_key_and_line(text: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as error:
        read_config(path)
    assert str(error.value).startswith(f"{path}{told}")


def test_a_new_secret_serves_as_key_and_as_token(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    write_secret(path)
    before = path.read_text()
    write_secret(path)
    assert path.read_text() == before
    section = SecuritySection(heartbeat_key_file=str(path), agent_token_file=str(path))
    assert len(section.heartbeat_keys()[0]) == 32
    assert section.agent_tokens() == (before.strip(),)


@pytest.mark.parametrize(
    ("text", "mode", "told"),
    [
        ("ab" * 32, 0o644, "open to everybody"),
        ("xyz", 0o600, "not hexadecimal"),
        ("abcd", 0o600, "16 to 32 bytes"),
        ("\n", 0o600, "holds no secret"),
    ],
)
def test_a_bad_secret_is_refused_without_being_told(tmp_path: Path, text: str, mode: int, told: str) -> None:
    path = tmp_path / "secret"
    path.write_text(text)
    path.chmod(mode)
    with pytest.raises(InputError, match=told) as caught:
        SecuritySection(heartbeat_key_file=str(path)).heartbeat_keys()
    assert text == "\n" or text not in str(caught.value)


def test_a_secret_that_is_not_set_is_told_by_its_key() -> None:
    with pytest.raises(InputError, match=r"security\.agent_token_file: is not set"):
        SecuritySection().agent_tokens()


def test_a_mistake_inside_a_list_is_named_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"outrider\.toml:3: fleet\.nodes\[0\]\.gpus: Expected `int`, got `str` \(is 'eight'\)$"):
        load(tmp_path, '[fleet]\nspares = []\nnodes = [{node = "n1", gpus = "eight"}]\n')


def test_a_word_that_is_none_of_the_choices_is_answered_with_them(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="may be 'observe', 'advise', 'act'"):
        load(tmp_path, '[site]\nmode = "fight"\n')


def test_a_mistake_in_a_list_of_tables_names_the_line_of_its_own_table(tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    path.write_text(
        '[fleet]\nspares = []\n\n[[fleet.nodes]]\nnode = "a"\n\n[[fleet.nodes]] # the second\nnode = "b"\nrak = "r1"\n'
        '[[fleet.nodes]]\nrack = 3\n[[collectors.mounts]]\npath = "/a"\n[[collectors.mounts]]\npaht = "/b"\n'
    )
    with pytest.raises(ConfigError) as caught:
        read_config(path)
    assert [(problem.line, problem.key) for problem in caught.value.problems] == [
        (9, "fleet.nodes[1].rak"), (10, "fleet.nodes[2].node"), (11, "fleet.nodes[2].rack"),
        (14, "collectors.mounts[1].path"), (15, "collectors.mounts[1].paht"),
    ]  # fmt: skip


def test_a_secret_of_the_wrong_type_is_not_shown(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Expected") as caught:
        load(tmp_path, "[security]\nheartbeat_key_file = 424242\nagent_token_file = 424242\n")
    assert "424242" not in str(caught.value)
