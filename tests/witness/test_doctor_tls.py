"""`outrider doctor` on certificates: what a witness shows, and what lies in the files of listeners on this machine."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from aiohttp import web
from tls_files import authority, signed

from detectors.witness import http
from detectors.witness.doctor_tls import certificates
from detectors.witness.findings import Finding, Patient
from outrider.config.site import read_config
from outrider.tls import server_context

pytestmark = pytest.mark.real

#: What a certificate is made with; state and words of its file, and of what is shown with it.
CASES: dict[str, tuple[dict, str, str, str, str]] = {
    "sound": ({"days": 90}, "ok", "in 90 days", "ok", "in 90 days"),
    "ends in ten days of ninety": (
        {"days": 90, "starts_days": -80}, "warn", "nothing has renewed it", "warn", "in 10 days, and nothing has renewed it",
    ),
    "lives for a day": ({"days": 1, "starts_days": -0.5}, "ok", "in 12 hours", "ok", "in 12 hours"),
    "over": ({"days": 1, "starts_days": -2}, "fail", "expired at ", "fail", "certificate has expired"),
    "not yet": ({"days": 9, "starts_days": 1}, "fail", "is not valid before", "fail", "certificate is not yet valid"),
    "another address": ({"days": 90, "names": "IP:10.0.0.1"}, "fail", "does not name 127.0.0.1", "fail", "IP address mismatch"),
    "a name, not the address": ({"days": 90, "names": "DNS:w1"}, "fail", "does not name 127.0.0.1", "fail", "IP address mismatch"),
}  # fmt: skip


@pytest.fixture
async def listen() -> AsyncIterator[Callable]:
    runners: list[web.AppRunner] = []

    async def start(cert: Path, key: Path) -> int:
        runners.append(await http.serve(web.Application(), "127.0.0.1", 0, server_context(str(cert), str(key))))
        port: int = runners[-1].addresses[0][1]
        return port

    yield start
    for runner in runners:
        await runner.cleanup()


async def examined(folder: Path, port: int, cert: Path, ca: Path, more: str = "") -> dict[str, Finding]:
    import asyncio

    path = folder / "site.toml"
    path.write_text(
        f'{more}\n[[witness.members]]\nname = "w1"\nhttp_port = {port}\nheartbeat_port = 9\n'
        f'tls_cert = "{cert}"\ntls_key = "{cert.with_suffix(".key")}"\ntls_ca = "{ca}"\n'
    )
    patient = Patient(config=read_config(path), node=None, name=None)
    return {finding.check: finding for finding in await asyncio.to_thread(lambda: list(certificates(patient)))}


@pytest.mark.parametrize("case", CASES)
async def test_what_ends_or_does_not_serve_is_told(case: str, listen: Callable, tmp_path: Path) -> None:
    how, file_state, file_words, shown_state, shown_words = CASES[case]
    ca = authority(tmp_path, "ours", days=365)
    cert, key = signed(tmp_path, ca, **{"starts_days": -0.001, **how})
    found = await examined(tmp_path, await listen(cert, key), cert, ca)
    assert (found["files of w1"].state, found["certificate w1"].state) == (file_state, shown_state)
    assert file_words in found["files of w1"].text
    assert shown_words in found["certificate w1"].text


async def test_a_renewal_that_spoilt_the_files_is_told_although_the_listener_goes_on(listen: Callable, tmp_path: Path) -> None:
    ca = authority(tmp_path, "ours", days=365)
    cert, key = signed(tmp_path, ca, days=90)
    port = await listen(cert, key)
    key.write_bytes(signed(tmp_path, ca, "other")[1].read_bytes())
    found = await examined(tmp_path, port, cert, ca)
    assert (found["certificate w1"].state, found["files of w1"].state) == ("ok", "fail")
    assert f"{cert}: cannot be used" in found["files of w1"].text


@pytest.mark.parametrize(("life_days", "told"), [(365, True), (20, False)], ids=["of a year's", "of twenty days'"])
async def test_an_authority_that_ends_soon_by_its_measure_is_told(
    listen: Callable, tmp_path: Path, life_days: float, told: bool
) -> None:
    ca = authority(tmp_path, "ours", days=life_days, starts_days=10 - life_days)
    cert, key = signed(tmp_path, ca, days=1)
    found = await examined(tmp_path, await listen(cert, key), cert, ca)
    assert found["certificate w1"].state == "ok"
    assert ("authority w1" in found) is told
    if told:
        assert (found["authority w1"].state, str(ca) in found["authority w1"].text) == ("warn", True)


async def test_a_witness_that_is_not_there_is_unknown_and_files_elsewhere_are_not_missed(tmp_path: Path) -> None:
    found = await examined(tmp_path, 9, tmp_path / "elsewhere.pem", authority(tmp_path, "ours"))
    assert [(name, one.state) for name, one in found.items()] == [("certificate w1", "unknown")]


async def test_pages_of_agent_and_deliverer_are_looked_at_too(tmp_path: Path) -> None:
    ca = authority(tmp_path, "ours")
    cert, key = signed(tmp_path, ca, "page", days=1, starts_days=-2)
    both = f'metrics_tls_cert = "{cert}"\nmetrics_tls_key = "{key}"'
    found = await examined(tmp_path, 9, tmp_path / "elsewhere.pem", ca, f"[agent]\n{both}\n[alerts]\n{both}")
    assert {name: one.state for name, one in found.items() if name.startswith("files")} == {
        "files of agent": "fail",
        "files of deliverer": "fail",
    }


async def test_a_site_in_clear_text_has_nothing_to_say(tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    path.write_text('[[witness.members]]\nname = "w1"\nhttp_port = 1\nheartbeat_port = 2\n')
    assert list(certificates(Patient(config=read_config(path), node=None, name=None))) == []
