"""Reads a trace: the header that names the site, then one signal a line. Every mistake names file, line and key."""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from outrider.errors import InputError
from outrider.fleet import Fleet
from outrider.signals import Signal
from outrider.topology.graph import strange_keys
from outrider.unknown_keys import Note, UnknownKeys, quiet, shape_of, unknown_keys
from outrider.wire import UNREADABLE

#: A line longer than this is not a signal; a dump that got into a trace must not fill the memory.
LINE_BYTES_MAX = 4 * 1024 * 1024
#: Normal life at a faster pace than this is a slip of the pen, and a replay of it would never end.
PACE_MIN_SECONDS = 0.001


class TraceSignal(Signal, frozen=True, kw_only=True, omit_defaults=True, gc=False, forbid_unknown_fields=True):
    """A signal of a trace; `to` names the witnesses that received it (None: all)."""

    to: tuple[str, ...] | None = None


class _Header(Fleet, frozen=True, kw_only=True):
    kind: str = ""


_SIGNAL = msgspec.json.Decoder(TraceSignal)
_HEADER = msgspec.json.Decoder(_Header)
_HEADER_SHAPE, _SIGNAL_SHAPE = shape_of(_Header), shape_of(TraceSignal)
_KEYS = frozenset(TraceSignal.__struct_fields__)
#: What a pause says in `data`: `attempt`, `boot` and `observed_s` may stand in any signal's.
_PAUSE_DATA: dict[str, None] = dict.fromkeys(("heartbeats", "steps", "kernel", "attempt", "boot", "observed_s"))
_PATH = re.compile(r" - at `\$\.?([^`]*)`$")


def read_header(line: bytes, file: str, number: int = 1, note: Note = quiet) -> Fleet:
    """The site of a trace. `note` is told of keys that nobody reads: the format may grow, and a slip of the pen must be seen.

    Raises:
        InputError: it is not a header, or it contradicts itself.
    """
    try:
        raw = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"is not JSON: {error}", file=file, line=number) from None
    if not isinstance(raw, dict) or raw.get("kind") != "fleet":
        raise InputError('must be a trace\'s header, {"kind": "fleet", "nodes": [..], ..}', file=file, line=number, key="kind")
    try:
        header = _HEADER.decode(line)
    except UNREADABLE as error:
        raise _mistake(error, file, number) from None
    check_header(header, file, number)
    strange = UnknownKeys(file, note)
    strange.tell(unknown_keys(raw, _HEADER_SHAPE), number)
    for place, cable in enumerate(header.links):
        strange.tell(((f"links[{place}].{key}", "a cable has two ends: from and to") for key in strange_keys(cable)), number)
    return header


def check_header(fleet: Fleet, file: str, line: int) -> None:
    """Refuses a header that contradicts itself. Raises InputError."""

    def wrong(key: str, text: str) -> InputError:
        return InputError(text, file=file, line=line, key=key)

    if not fleet.nodes:
        raise wrong("nodes", "must name at least one node")
    nodes = {node.node: node for node in fleet.nodes}
    _once([node.node for node in fleet.nodes], "nodes", wrong)
    _once(list(fleet.witnesses), "witnesses", wrong)
    _once(list(fleet.spares), "spares", wrong)
    _once([job.job for job in fleet.jobs], "jobs", wrong)
    if not fleet.witnesses:
        raise wrong("witnesses", "must name at least one witness")
    for spare in fleet.spares:
        if spare not in nodes:
            raise wrong("spares", f"unknown node {spare!r}")
    for node in fleet.nodes:
        if node.gpus < 0:
            raise wrong(f"nodes.{node.node}.gpus", "must be 0 or more")
    taken: dict[tuple[str, int], str] = {}
    for job in fleet.jobs:
        _check_job(job, nodes, taken, set(fleet.spares), wrong)
    names = {job.job for job in fleet.jobs}
    for name, seconds in fleet.auto.step_s.items():
        if name not in names:
            raise wrong("auto.step_s", f"unknown job {name!r}")
        if not PACE_MIN_SECONDS <= seconds < math.inf:
            raise wrong(f"auto.step_s.{name}", f"must be at least {PACE_MIN_SECONDS}")
    if fleet.auto.heartbeat_s is not None and not PACE_MIN_SECONDS <= fleet.auto.heartbeat_s < math.inf:
        raise wrong("auto.heartbeat_s", f"must be at least {PACE_MIN_SECONDS}")
    if fleet.until is not None and (fleet.until < 0 or not math.isfinite(fleet.until)):
        raise wrong("until", "must be 0 or more")


def _once(names: list[str], key: str, wrong: Any) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise wrong(key, f"{twice[0]!r} is named twice")


def _check_job(job: Any, nodes: dict[str, Any], taken: dict[tuple[str, int], str], spares: set[str], wrong: Any) -> None:
    where = f"jobs.{job.job}"
    for rank, (node, gpu) in enumerate(job.slots):
        key = f"{where}.slots[{rank}]"
        if node not in nodes:
            raise wrong(key, f"unknown node {node!r}")
        if node in spares:
            raise wrong(key, f"{node!r} is a spare and cannot hold a slot")
        if gpu < 0 or (nodes[node].gpus and gpu >= nodes[node].gpus):
            raise wrong(key, f"{node!r} has no GPU {gpu} (it has {nodes[node].gpus})")
        if (node, gpu) in taken:
            raise wrong(key, f"GPU {gpu} of {node!r} is already the slot of {taken[node, gpu]}")
        taken[node, gpu] = f"rank {rank} of {job.job!r}"
    for name, groups in job.groups.items():
        for group in groups:
            outside = [rank for rank in group if not 0 <= rank < len(job.slots)]
            if outside and job.slots:
                raise wrong(f"{where}.groups.{name}", f"rank {outside[0]} is not in the job (it has {len(job.slots)} slots)")
    for name, seconds in job.limits.items():
        if not seconds > 0:
            raise wrong(f"{where}.limits.{name}", "must be more than 0")


def read_signals(
    lines: Iterable[bytes], fleet: Fleet, file: str, first: int = 2, note: Note = quiet
) -> Iterator[tuple[int, TraceSignal]]:
    """The signals of a trace with their line numbers, in order of time; blank lines are skipped, `note` as for the header.

    Raises:
        InputError: a line is no signal, time runs backwards, or it names a witness or (in a `pause`) a node that is
            not in the header.
    """
    decode, unread = _SIGNAL.decode, UnknownKeys(file, note)
    last = float("-inf")
    witnesses = frozenset(fleet.witnesses)
    nodes = frozenset(node.node for node in fleet.nodes)
    automatic = frozenset(fleet.auto.step_s)
    for number, line in enumerate(lines, first):
        try:
            signal = decode(line)
        except UNREADABLE:
            if not line.strip():
                continue
            signal = _again(line, file, number, unread)
        _check_delivery(signal, last, witnesses, file, number)
        last = signal.t
        if signal.kind == "pause":
            _check_pause(signal, nodes, file, number)
            unread.tell(unknown_keys({"data": signal.data}, {"data": _PAUSE_DATA}), number)
        elif signal.kind == "job":
            _check_slots(signal, nodes, file, number)
        elif signal.kind == "step" and signal.job in automatic:
            raise InputError(
                f"job {signal.job!r} has automatic steps; it cannot have explicit ones", file=file, line=number, key="kind"
            )
        elif signal.kind == "fleet":
            raise InputError("a second header", file=file, line=number, key="kind")
        yield number, signal


def _check_delivery(signal: TraceSignal, last: float, witnesses: frozenset[str], file: str, number: int) -> None:
    """When a signal comes, and to whom. `last`: when the one before it came."""
    if not math.isfinite(signal.t):
        raise InputError(f"must be a finite number of seconds, not {signal.t}", file=file, line=number, key="t")
    if signal.t < last:
        raise InputError(f"time runs backwards ({signal.t} after {last})", file=file, line=number, key="t")
    if signal.to is not None and not witnesses.issuperset(signal.to):
        strange = sorted(set(signal.to) - witnesses)
        raise InputError(f"unknown witness {strange[0]!r}", file=file, line=number, key="to")


def _again(line: bytes, file: str, number: int, unread: UnknownKeys) -> TraceSignal:
    """A line with keys that nobody reads, or with NaN and Infinity, which Python writes and JSON does not know."""
    if len(line) > LINE_BYTES_MAX:
        raise InputError(f"is longer than {LINE_BYTES_MAX} bytes", file=file, line=number)
    try:
        raw = json.loads(line)
    except (ValueError, RecursionError) as problem:
        raise InputError(f"is not JSON: {problem}", file=file, line=number) from None
    if not isinstance(raw, dict):
        raise InputError("must be a JSON object", file=file, line=number)
    try:
        signal = msgspec.convert({key: value for key, value in raw.items() if key in _KEYS}, TraceSignal)
    except UNREADABLE as problem:
        raise _mistake(problem, file, number) from None
    unread.tell(unknown_keys(raw, _SIGNAL_SHAPE), number)
    return signal


def _mistake(error: Exception, file: str, line: int) -> InputError:
    """Says what msgspec says, with the key where it says one."""
    text = str(error)
    if match := _PATH.search(text):
        return InputError(text[: match.start()], file=file, line=line, key=match[1] or None)
    if match := re.search(r"required field `(\w+)`", text):
        return InputError("is missing", file=file, line=line, key=match[1])
    return InputError(text, file=file, line=line)


def _check_pause(signal: TraceSignal, nodes: frozenset[str], file: str, line: int) -> None:
    def wrong(key: str, text: str) -> InputError:
        return InputError(text, file=file, line=line, key=key)

    if signal.node not in nodes:
        raise wrong("node", f"unknown node {signal.node!r}" if signal.node else "a pause must name a node")
    value = signal.value
    if value is not None and (isinstance(value, str) or not value > 0 or not math.isfinite(value)):
        raise wrong("value", f"must be seconds, more than 0, or null (is {value!r})")
    for key in ("heartbeats", "steps", "kernel"):
        if not isinstance(signal.data.get(key, True), bool):
            raise wrong(f"data.{key}", "must be true or false")


def _check_slots(signal: TraceSignal, nodes: frozenset[str], file: str, line: int) -> None:
    slots = signal.data.get("slots")
    if slots is not None and not isinstance(slots, list):
        raise InputError("must be a list of [node, gpu]", file=file, line=line, key="data.slots")
    for rank, slot in enumerate(slots or ()):
        key = f"data.slots[{rank}]"
        if not isinstance(slot, list | tuple) or len(slot) != 2 or not isinstance(slot[0], str) or not isinstance(slot[1], int):
            raise InputError("must be [node, gpu]", file=file, line=line, key=key)
        if slot[0] not in nodes:
            raise InputError(f"unknown node {slot[0]!r}", file=file, line=line, key=key)
