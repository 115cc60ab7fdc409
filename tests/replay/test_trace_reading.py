"""A trace that is wrong is one line with file, line and key; a strange signal in a right one never stops the judge."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from traces import header, run

from detectors.core.engine import Engine
from detectors.replay.command import replay
from detectors.replay.runner import Replay
from detectors.replay.trace import read_header, read_signals
from outrider.config.policy import Policy
from outrider.errors import InputError
from outrider.signals import KINDS, Signal


def change(head: dict[str, Any], **changed: Any) -> dict[str, Any]:
    return {**head, **changed}


HEAD = header(nodes=3, spares=1)
JOB = HEAD["jobs"][0]
BAD_HEADERS = {
    "no header": ({"t": 0, "kind": "heartbeat"}, "kind"),
    "node twice": (change(HEAD, nodes=[*HEAD["nodes"], HEAD["nodes"][0]]), "nodes"),
    "no nodes": (change(HEAD, nodes=[]), "nodes"),
    "unknown spare": (change(HEAD, spares=["x"]), "spares"),
    "slot of an unknown node": (change(HEAD, jobs=[change(JOB, slots=[["x", 0]])]), "jobs.j1.slots[0]"),
    "slot of a spare": (change(HEAD, jobs=[change(JOB, slots=[["n3", 0]])]), "jobs.j1.slots[0]"),
    "slot beyond the GPUs": (change(HEAD, jobs=[change(JOB, slots=[["n1", 7]])]), "jobs.j1.slots[0]"),
    "one slot twice": (change(HEAD, jobs=[change(JOB, slots=[["n1", 0], ["n1", 0]], groups={})]), "jobs.j1.slots[1]"),
    "group beyond the ranks": (change(HEAD, jobs=[change(JOB, groups={"dp": [[0, 99]]})]), "jobs.j1.groups.dp"),
    "limit of zero": (change(HEAD, jobs=[change(JOB, limits={"train_s": 0})]), "jobs.j1.limits.train_s"),
    "witness twice": (change(HEAD, witnesses=["w1", "w1"]), "witnesses"),
    "no witness": (change(HEAD, witnesses=[]), "witnesses"),
    "steps of an unknown job": (change(HEAD, auto={"step_s": {"x": 1.0}}), "auto.step_s"),
    "pace of zero": (change(HEAD, auto={"heartbeat_s": 0}), "auto.heartbeat_s"),
    "until is a text": (change(HEAD, until="x"), "until"),
}


@pytest.mark.parametrize(("head", "key"), BAD_HEADERS.values(), ids=BAD_HEADERS)
def test_a_header_that_contradicts_itself_is_refused(head: dict[str, Any], key: str) -> None:
    with pytest.raises(InputError) as error:
        read_header(json.dumps(head).encode(), "a.jsonl")
    assert (error.value.file, error.value.line, error.value.key) == ("a.jsonl", 1, key)


BAD_LINES = {
    "not JSON": ("{", 2, None),
    "not an object": ("[1]", 2, None),
    "no time": ('{"kind": "heartbeat", "node": "n1"}', 2, "t"),
    "time is infinite": ('{"t": 1e999, "kind": "xid"}', 2, "t"),
    "time is Python's infinity": ('{"t": Infinity, "kind": "xid"}', 2, "t"),
    "time is no number": ('{"t": NaN, "kind": "xid"}', 2, "t"),
    "slots are no list": ('{"t": 1, "kind": "job", "job": "j1", "value": 2, "data": {"slots": 7}}', 2, "data.slots"),
    "slots are an object": ('{"t": 1, "kind": "job", "job": "j1", "value": 2, "data": {"slots": {"n1": 0}}}', 2, "data.slots"),
    "a slot's node is a table": ('{"t": 1, "kind": "job", "job": "j1", "data": {"slots": [[{}, 0]]}}', 2, "data.slots[0]"),
    "a slot's node is a list": ('{"t": 1, "kind": "job", "job": "j1", "data": {"slots": [[["n1"], 0]]}}', 2, "data.slots[0]"),
    "time is a text": ('{"t": "x", "kind": "heartbeat"}', 2, "t"),
    "rank is a text": ('{"t": 1, "kind": "step", "rank": "x"}', 2, "rank"),
    "pause of an unknown node": ('{"t": 1, "kind": "pause", "node": "x", "value": 1}', 2, "node"),
    "pause of nobody": ('{"t": 1, "kind": "pause", "value": 1}', 2, "node"),
    "pause of no time": ('{"t": 1, "kind": "pause", "node": "n1", "value": 0}', 2, "value"),
    "pause towards an unknown witness": ('{"t": 1, "kind": "pause", "node": "n1", "value": 1, "to": ["w9"]}', 2, "to"),
    "unknown node in slots": (
        '{"t": 1, "kind": "job", "job": "j1", "value": 2, "data": {"slots": [["x", 0]]}}',
        2,
        "data.slots[0]",
    ),
    "time runs backwards": ('{"t": 5, "kind": "xid"}\n{"t": 4, "kind": "xid"}', 3, "t"),
    "explicit steps beside automatic ones": ('{"t": 1, "kind": "step", "job": "j1", "value": 1}', 2, "kind"),
    "a second header": ('{"t": 1, "kind": "fleet"}', 2, "kind"),
}


@pytest.mark.parametrize(("lines", "number", "key"), BAD_LINES.values(), ids=BAD_LINES)
def test_a_malformed_line_is_named_with_its_key(lines: str, number: int, key: str | None, tmp_path: Path) -> None:
    fleet = read_header(json.dumps(HEAD).encode(), "a.jsonl")
    with pytest.raises(InputError) as error:
        list(read_signals(lines.encode().split(b"\n"), fleet, "a.jsonl"))
    assert (error.value.file, error.value.line, error.value.key) == ("a.jsonl", number, key)


def test_the_command_prints_json_lines_and_its_status_says_what_was_found(tmp_path: Path) -> None:
    file = tmp_path / "trace.jsonl"
    file.write_text(json.dumps(HEAD) + "\n\n" + '{"t": 40, "kind": "kernel", "node": "n1", "data": {"event": "panic"}}\n')
    result = CliRunner().invoke(replay, ["--json", str(file)], standalone_mode=False)
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.return_value == 1 and [line["event"] for line in lines][:2] == ["suspected", "confirmed"]
    assert set(lines[1]) >= {"t", "event", "incident", "fault", "culprit", "subject", "response", "repair", "layers", "votes",
                             "evidence", "explanation"}  # fmt: skip
    assert lines[1]["votes"] == {"w1": "faulty", "w2": "faulty", "w3": "faulty"}
    healthy = tmp_path / "healthy.jsonl"
    healthy.write_text(json.dumps(HEAD) + "\n")
    assert CliRunner().invoke(replay, ["--json", str(healthy)], standalone_mode=False).return_value == 0


def test_observe_mode_refuses_and_says_why() -> None:
    panic = {"t": 40, "kind": "kernel", "node": "n1", "data": {"event": "panic"}}
    lines = run(header(until=60), panic, policy=Policy())
    refused = [line for line in lines if line["event"] == "refused"]
    assert {line["action"] for line in refused} == {"snapshot", "quarantine", "restart"}
    assert all("observe" in line["refused"] for line in refused) and not [line for line in lines if line["event"] == "action"]


def test_a_nan_written_by_python_is_read() -> None:
    fleet = read_header(json.dumps(header(step_s=None)).encode(), "a")
    [(_, signal)] = read_signals([b'{"t": 1, "kind": "step", "job": "j1", "value": 1, "data": {"loss": NaN}}'], fleet, "a")
    assert signal.data["loss"] != signal.data["loss"]


numbers = st.one_of(st.integers(-5, 10**6), st.floats(allow_nan=True))
values = st.one_of(st.none(), st.booleans(), numbers, st.text(max_size=5), st.lists(st.integers(), max_size=2))
KEYS = """
    seq boot by answer pci uuid state attempt step_s compute_s wait_s data_s loss lr grad_norm progress slots groups reason peer
    peer_rank device recovered group last_enqueued ok error seconds event corrected uncorrected pending failed down throttle util
    power_w power_limit_w expected observed_s scheduler_step up rate_gbps rate_max_gbps link_downed symbol_error dp limits
"""
WORDS = ["train", "eval", "on", "off", "up", "down", "data"]
strange = st.builds(
    Signal,
    t=st.just(5.0),
    nic=st.just("mlx5_0"),
    kind=st.sampled_from([*KINDS, "nonsense"]),
    node=st.sampled_from([None, "n1", "n2", "zzz"]),
    gpu=st.sampled_from([None, 0, 1, 99, -1]),
    job=st.sampled_from([None, "j1", "zzz"]),
    rank=st.sampled_from([None, 0, 3, 99, -1]),
    value=st.one_of(st.none(), st.integers(-5, 200), st.floats(allow_nan=True), st.sampled_from(WORDS)),
    data=st.dictionaries(st.sampled_from(KEYS.split()), values, max_size=5),
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(strange, max_size=12))
def test_no_signal_whatever_stops_a_witness(signals: list[Signal]) -> None:
    fleet = read_header(json.dumps(header(step_s=None)).encode(), "a")
    run_ = Replay(fleet, Policy(mode="act"))
    engines: list[Engine] = list(run_.engines.values())
    now = 5.0
    for signal in signals:
        now += 0.5
        for engine in engines:
            run_._take(engine.observe(signal, now), now)
        run_._take(run_.council.observe(signal, now), now)
    for later in (10.0, 60.0, 700.0):
        for engine in engines:
            run_._take(engine.advance(later), later)
        run_.council.advance(later)


def test_a_recorded_trace_lasts_from_its_first_line_whatever_its_clock(tmp_path: Path) -> None:
    """A journal's clock is its machine's: two minutes of it are two minutes, not the hours since the machine was started."""
    file = tmp_path / "journal.jsonl"
    head = {"kind": "fleet", "nodes": [{"node": "n1"}], "witnesses": ["w1"]}
    beats = [{"t": t, "kind": "heartbeat", "node": "n1"} for t in (5000.0, 5060.0, 5120.0)]
    file.write_text("".join(json.dumps(line) + "\n" for line in (head, *beats)))
    assert "120.0 s of time" in CliRunner().invoke(replay, [str(file)], standalone_mode=False).output
