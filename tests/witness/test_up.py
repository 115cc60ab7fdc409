"""`outrider up` as a person uses it: real processes, real sockets; whatever happens, nothing is left running."""

import asyncio
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from detectors.witness.client import Client
from detectors.witness.journal_merge import merge
from detectors.witness.starter import write_starter
from drills.cluster.settings import watch_settings
from outrider.config.security import SecuritySection
from outrider.config.site import SiteSection, read_config
from outrider.config.witness import Member, WitnessSection
from outrider.errors import InputError, OutriderError
from outrider.signals import Signal, encode_batch
from outrider.wire import SENT_HEADER, Heartbeat, pack_heartbeat, signal_id

pytestmark = pytest.mark.real
SHELL = [sys.executable, "-m", "outrider.cli.shell"]


def free_ports(count: int) -> list[int]:
    held = [socket.socket() for _ in range(count)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


def three_free_ports() -> int:
    """The first of three free ports in a row."""
    while True:
        (first,) = free_ports(1)
        try:
            for port in range(first, first + 3):
                with socket.socket() as one:
                    one.bind(("127.0.0.1", port))
        except OSError:
            continue
        return first


def write_site(folder: Path, ports: list[int], ledger: str = "") -> Path:
    members = [Member(name=f"w{index + 1}", http_port=ports[2 * index], heartbeat_port=ports[2 * index + 1]) for index in range(3)]
    nodes = "".join(f'[[fleet.nodes]]\nnode = "{name}"\naddress = "127.0.0.1"\ngpus = 1\n' for name in ("n1", "n2", "n3"))
    path = folder / "site.toml"
    path.write_text(f"""
[site]
mode = "act"
[fleet]
spares = ["n3"]
{nodes}
{watch_settings(folder, members, f"lease_seconds = 1.0{chr(10)}{ledger}")}""")
    return path


async def until(what: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Asks again until the answer is true; a witness that does not answer yet is no answer."""
    end = time.monotonic() + seconds
    while True:
        try:
            if answer := await asyncio.to_thread(what):
                return answer
        except OutriderError as error:
            if time.monotonic() > end:
                raise AssertionError(str(error)) from None
        assert time.monotonic() < end, "it did not come"
        await asyncio.sleep(0.05)


async def start_up(path: Path) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *SHELL, "up", "--config", str(path), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )


def children_of(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def send(client: Client, path: Path, *signals: Signal) -> None:
    import urllib.request

    token = read_config(path).get(SecuritySection).agent_tokens()[0]
    for member in client._members:
        request = urllib.request.Request(
            f"{member.url}/v1/signals", data=encode_batch(list(signals)),
            headers={"Authorization": f"Bearer {token}", SENT_HEADER: str(time.monotonic())},
        )  # fmt: skip
        with await asyncio.to_thread(urllib.request.urlopen, request, None, 5.0) as answer:
            assert answer.status == 200


@pytest.mark.parametrize("backend", ["sqlite", "etcd"])
async def test_a_killed_rank_is_confirmed_by_all_and_the_leader_may_die(
    tmp_path: Path, backend: str, request: pytest.FixtureRequest
) -> None:
    etcd = request.getfixturevalue("etcd") if backend == "etcd" else ""
    path = write_site(
        tmp_path, free_ports(6), f'backend = "etcd"\nendpoints = ["{etcd}"]\nprefix = "/{tmp_path.name}/"' if etcd else ""
    )
    up = await start_up(path)
    try:
        client = Client(read_config(path))
        status = await until(lambda: (told := client.get("/v1/status"))["leader"] and told)
        await until(lambda: all(seen["up"] for seen in client.get("/v1/status")["witnesses"].values()))
        now = time.monotonic()
        job = Signal(
            t=now, kind="job", job="j1", node="n1", value=1, data={"slots": [["n1", 0], ["n2", 0]]}, id=signal_id("n1", "b", 1, 1)
        )
        dead = Signal(
            t=now, kind="process_exit", job="j1", rank=1, node="n2", value=-9, data={"attempt": 1}, id=signal_id("n1", "b", 1, 2)
        )
        await send(client, path, job, dead)
        found = await until(lambda: [one for one in client.get("/v1/incidents") if "confirmed" in one["times"]])
        assert [(one["fault"], one["subject"]["rank"]) for one in found] == [("job.rank_exit", 1)]
        story = client.get(f"/v1/incidents/{found[0]['incident']}")
        assert {row["type"] for row in story["actions"]} == {
            "incident.confirmed",
            "job.snapshot.requested",
            "job.restart.requested",
        }
        # The leader is killed: another one leads, knows the job and the incident, and the fence has not gone back.
        leader = status["leader"]
        assert up.pid is not None
        victims = [
            pid for pid in children_of(up.pid) if f"witness:{leader}" in Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        ]
        os.kill(victims[0], signal.SIGKILL)
        # `up` starts the killed one again, which may well lead anew.
        await until(lambda: children_of(up.pid or 0) and victims[0] not in children_of(up.pid or 0))
        await until(lambda: all(seen["up"] for seen in client.get("/v1/status")["witnesses"].values()))
        await until(lambda: client.get("/v1/status")["leader"] is not None)
        told = client.get("/v1/status")
        (line,) = told["jobs"].values()
        heard, state = line.pop("heard_s"), line.pop("state")
        assert told["jobs"] == {"j1": {"attempt": 1, "ranks": 2, "ended": None}}
        assert (heard is None or heard < 60) and state in ("running", "unknown")  # one that has just begun heard nobody
        assert found[0]["incident"] in [one["incident"] for one in told["open"]]
    finally:
        children = children_of(up.pid)
        up.send_signal(signal.SIGINT)
        output, _ = await up.communicate()
    assert up.returncode == 0, output.decode()
    assert not [pid for pid in children if alive(pid)]
    assert "is started again" in output.decode()
    header = next(merge(tmp_path / "witness", ("w1", "w2", "w3")))
    assert json.loads(header)["kind"] == "fleet"


async def test_a_busy_port_ends_all_with_one_line_and_status_2(tmp_path: Path) -> None:
    ports = free_ports(6)
    path = write_site(tmp_path, ports)
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", ports[2]))
        busy.listen()
        up = await start_up(path)
        output, _ = await asyncio.wait_for(up.communicate(), 30)
    assert up.returncode == 2
    assert f"{path}: witness.members[1].http_port: port {ports[2]} at 127.0.0.1" in output.decode()
    assert "Traceback" not in output.decode()


async def test_a_killed_up_leaves_nothing_running(tmp_path: Path) -> None:
    path = write_site(tmp_path, free_ports(6))
    up = await start_up(path)
    client = Client(read_config(path))
    await until(lambda: client.get("/v1/status")["leader"])
    children = children_of(up.pid)
    up.kill()
    await up.communicate()
    assert len(children) >= 3
    await until(lambda: not [pid for pid in children if alive(pid)])


async def test_a_witness_that_stood_still_suspects_nobody(tmp_path: Path) -> None:
    path = write_site(tmp_path, free_ports(6))
    up = await start_up(path)
    beating = None
    try:
        config = read_config(path)
        client = Client(config)
        await until(lambda: client.get("/v1/status")["leader"])
        keys = config.get(SecuritySection).heartbeat_keys()

        async def beat() -> None:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                for seq in range(1, 1000):
                    for node in ("n1", "n2", "n3"):
                        for member in client._members:
                            datagram = pack_heartbeat(Heartbeat(1, node, "b", 1, seq, time.monotonic(), 0.0), keys)
                            sender.sendto(datagram, (member.address, member.heartbeat_port))
                    await asyncio.sleep(0.2)

        beating = asyncio.create_task(beat())
        await until(lambda: client.get("/v1/status")["heartbeats"] > 30)
        (stopped,) = [pid for pid in children_of(up.pid) if "witness:w1" in Path(f"/proc/{pid}/cmdline").read_text().split("\0")]
        os.kill(stopped, signal.SIGSTOP)
        await asyncio.sleep(5.0)
        os.kill(stopped, signal.SIGCONT)
        told = await until(lambda: (told := client.get("/v1/status"))["stalls"] and told)
        assert told["witness"] == "w1"
        assert not [one for one in client.get("/v1/incidents") if "node" in one["subject"]]
    finally:
        if beating is not None:
            beating.cancel()
        up.send_signal(signal.SIGINT)
        await up.communicate()


async def test_without_settings_it_writes_some_and_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("detectors.witness.starter.HTTP_PORT", three_free_ports())
    write_starter(tmp_path / "outrider.toml")
    config = read_config(tmp_path / "outrider.toml")
    assert [member.name for member in config.get(WitnessSection).members] == ["w1", "w2", "w3"]
    assert config.get(SiteSection).mode == "observe"
    with pytest.raises(InputError, match="File exists"):
        write_starter(tmp_path / "outrider.toml")
    up = await asyncio.create_subprocess_exec(*SHELL, "up", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT)
    try:
        client = Client(config)
        told = await until(lambda: client.get("/v1/status"))
        assert told["nodes"] == 1
    finally:
        up.send_signal(signal.SIGTERM)
        output, _ = await up.communicate()
    assert up.returncode == 0, output.decode()


async def test_up_says_that_a_witness_is_there_when_it_answers(tmp_path: Path) -> None:
    path = write_site(tmp_path, free_ports(6))
    up = await start_up(path)
    try:
        assert up.stdout is not None
        client, told = Client(read_config(path)), 0
        async with asyncio.timeout(60):
            while told < 3:
                line = (await up.stdout.readline()).decode()
                assert line, "it ended"
                if line.startswith("witness w") and " at http" in line:
                    told += 1
                    members = read_config(path).get(WitnessSection).members
                    client._members = tuple(member for member in members if member.url in line)
                    assert await asyncio.to_thread(client.get, "/v1/status"), "it answers"
    finally:
        up.terminate()
        await up.wait()
