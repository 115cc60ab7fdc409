"""What is nested a thousand deep is refused at every door, in one line, whoever sent it."""

import ast
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from alerts.schedulers.port import SchedulerError
from alerts.schedulers.ranks import read_map
from alerts.schedulers.slurm_reading import records
from collectors.agent.local import LocalServer
from collectors.agent.loop import Loop
from collectors.frame.types import CollectorError
from collectors.provider import _table
from dashboards.console.states import Memory, read_memory
from detectors.replay.trace import read_header, read_signals
from outrider import wire
from outrider.errors import InputError
from outrider.signals import decode_batch

DEEP = b"[" * 3000 + b"]" * 3000
SIGNAL = b'{"t": 1, "kind": "step", "data": {"a": ' + DEEP + b"}}"
BATCH = b"\x91\x83\xa1t\x01\xa4kind\xa4step\xa4data\x81\xa1a" + b"\x91" * 3000 + b"\x01"
ROOT = Path(__file__).resolve().parents[2]


def replayed(line: bytes) -> Any:
    fleet = read_header(b'{"kind": "fleet", "nodes": [{"node": "n1"}]}', "trace")
    return list(read_signals([line], fleet, "trace"))


def heartbeat(_: bytes) -> Any:
    body = b"\x91" * 400 + b"\x01"
    return wire.unpack_heartbeat(body + wire.blake2s(body, key=b"k" * 32, digest_size=16).digest(), (b"k" * 32,))


@pytest.mark.parametrize(
    ("door", "errors"),
    [
        (lambda _: replayed(SIGNAL), InputError),
        (lambda _: decode_batch(BATCH), wire.UNREADABLE),
        (lambda deep: wire.decode_orders(b'[{"number": 1, "id": "a", "order": "probe", "new": ' + deep + b"}]"), wire.UNREADABLE),
        (heartbeat, wire.WireError),
        (lambda deep: records(deep.decode(), "jobs", "squeue"), SchedulerError),
        (lambda deep: _table(deep.decode(), "events"), CollectorError),
    ],
    ids=["trace", "batch of signals", "orders", "heartbeat", "slurm", "cloud provider"],
)
def test_a_reader_says_so_by_an_error_that_its_caller_expects(door: Callable[[bytes], Any], errors: Any) -> None:
    with pytest.raises(errors):
        door(DEEP)


def test_a_rank_map_and_a_memory_of_another_make_are_no_crash(tmp_path: Path) -> None:
    (tmp_path / "j.ranks.json").write_bytes(b'{"job": "j", "new": ' + DEEP + b"}")
    with pytest.raises(SchedulerError):
        read_map(tmp_path, "j")
    assert read_memory(b'{"new": ' + DEEP + b"}") == Memory()


class Nobody:
    """An agent that nobody should reach."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


def test_a_rank_that_tells_such_a_thing_is_answered_and_the_agent_hears_the_next(tmp_path: Path) -> None:
    loop = Loop([].append)
    server = LocalServer(loop, tmp_path / "agent.sock", "n1", (), Nobody())
    caller = socket.socket(socket.AF_UNIX)
    caller.connect(str(tmp_path / "agent.sock"))
    caller.settimeout(5.0)
    answers = b""
    try:
        server._accept()
        (inside,) = server._callers
        caller.sendall(b'{"event": {"kind": "phase", "data": {"a": ' + DEEP + b'}}}\n{"hello": "launcher"}\n')
        for _ in range(20):
            inside.read()
            if answers.count(b"\n") == 2:
                break
            answers += caller.recv(65536)
        first, second = (msgspec.json.decode(line) for line in answers.splitlines())
        assert (first["ok"], second["ok"], server.bad_lines) == (False, True, 1)
    finally:
        caller.close()
        server.close()
        loop.close()


@pytest.mark.parametrize("room", ["outrider", "collectors", "detectors", "alerts", "dashboards"])
def test_nobody_expects_msgspecs_own_errors_alone(room: str) -> None:
    """`outrider.wire.UNREADABLE` names all that a reader of bytes may raise; converting what is read already is another thing."""
    found = []
    for path in (ROOT / room).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ExceptHandler) and node.type is not None and "MsgspecError" in ast.unparse(node.type):
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert found == []
