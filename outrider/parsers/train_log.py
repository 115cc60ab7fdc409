"""Training logs: one line in, one record out, or None for the ordinary.

`parse_line` serves both `outrider inspect` and the live agent's log tailer; `to_signal` turns a record into the signal that a
witness
judges. The rules stand in `nccl.py` and in the `train_log_*.py` files beside this one, by who prints them.
"""

from typing import Final

from outrider.parsers.nccl import NCCL_GATES
from outrider.parsers.prefixes import YEAR_UNKNOWN
from outrider.parsers.train_log_errors import CUDA_GATES, ERROR_GATES
from outrider.parsers.train_log_numbers import LIFE_GATES, NAN_GATES, RERUN_GATES, parse_step
from outrider.parsers.train_log_rule import LINE_CHARS_MAX, Gates, Record, first_record
from outrider.parsers.train_log_scheduler import SCHEDULER_GATES
from outrider.parsers.train_log_torch import TORCH_GATES
from outrider.signals import Signal

#: The order matters where a line fits several: what names a cause comes before what only tells that something fell.
GATES: Final[Gates] = RERUN_GATES + CUDA_GATES + TORCH_GATES + NCCL_GATES + SCHEDULER_GATES + ERROR_GATES + NAN_GATES + LIFE_GATES

#: A line that has one of these may be a step line; it is read by `parse_step` before the rules.
_STEP_WORDS: Final = ("loss", "Loss", "grad", "iteration")


#: Short texts that several gates share: a block is searched for these in place of each.
_HUBS: Final = (
    *(
        "rror",
        "xception",
        " signal",
        "ollective",
        "oined ",
        " memory",
        "orker group",
        "exit",
        "CUDA",
        "_STATUS_",
        "imed out",
        "imeout",
    ),
    *(" failed", "SIG", "oader", "Killed", "Evict", "heckpoint"),
)
#: Gate -> what a block is searched for on its behalf.
_HUB_OF: Final = {literal: next((hub for hub in _HUBS if hub in literal), literal) for literal, _ in GATES}
_SEARCHED: Final = tuple(dict.fromkeys((*_STEP_WORDS, *_HUB_OF.values())))


def scan(text: str, year: int = YEAR_UNKNOWN) -> list[tuple[int, Record]]:
    """All records of a block of whole lines, each with its line's number in the block, from 0.

    Faster than `parse_line` for each line: the block is searched for each literal, and only lines that have one are looked at.
    """
    starts: set[int] = set()
    here = {literal for literal in _SEARCHED if literal in text}
    active = tuple(one for one in GATES if _HUB_OF[one[0]] in here and one[0] in text)
    for literal in here:
        at = text.find(literal)
        while at >= 0:
            starts.add(text.rfind("\n", 0, at) + 1)
            end = text.find("\n", at)
            at = text.find(literal, end) if end >= 0 else -1
    found, number, before = [], 0, 0
    for start in sorted(starts):
        number += text.count("\n", before, start)
        before = start
        end = text.find("\n", start)
        line = text[start : min(end if end >= 0 else len(text), start + LINE_CHARS_MAX)]
        if (record := _parse(line, active, year)) is not None:
            found.append((number, record))
    return found


def parse_line(line: str, year: int = YEAR_UNKNOWN) -> Record | None:
    """What the line says, or None.

    Args:
        line: one line, without its newline.
        year: the year of stamps that have none.
    """
    return _parse(line[:LINE_CHARS_MAX], GATES, year)


def _parse(line: str, gates: Gates, year: int) -> Record | None:
    for word in _STEP_WORDS:
        if word in line:
            if (record := parse_step(line, year)) is not None:
                return record
            break
    return first_record(line, gates, year)


#: Record -> signal kind, for those that a witness judges.
_KINDS: Final = {
    "step": "step",
    "watchdog_timeout": "collective_timeout",
    "watchdog_status": "collective_timeout",
    "nccl_error": "collective_error",
    "ib_completion": "collective_error",
    "ib_async": "collective_error",
    "ib_recovery": "collective_error",
    "peer_closed": "collective_error",
    "peer_reset": "collective_error",
    "gloo_closed": "collective_error",
    "elastic_exit": "process_exit",
    "task_exit": "process_exit",
    "pod_exit": "process_exit",
}


def to_signal(record: Record, t: float, *, node: str | None = None, job: str | None = None) -> Signal | None:
    """The signal of a record, or None: the record is evidence for people only.

    Args:
        record: what `parse_line` gave.
        t: when the agent read the line, seconds on its clock.
        node, job: where the agent runs, used where the line does not say.
    """
    kind = _KINDS.get(record.what)
    if kind is None:
        return None
    data = dict(record.data)
    value: float | int | str | None = None
    nic = data.pop("nic", None)
    port = data.pop("port", None)
    if kind == "step":
        if data.get("eval") or "step" not in data:
            return None
        value = data.pop("step")
    elif kind == "process_exit":
        value = data.pop("exitcode", None)
    elif kind == "collective_timeout":
        _rename(data, enqueued="last_enqueued", completed="last_completed")
        if "elapsed_ms" in data:
            data["elapsed_s"] = data.pop("elapsed_ms") / 1000
    else:
        data["library"] = "gloo" if record.what.startswith("gloo") else "nccl"
    return Signal(
        t=t, kind=kind, node=record.node or node, gpu=record.gpu, job=job, rank=record.rank, process=record.pid,
        nic=nic, port=port, value=value, data=data, text=record.text, source="log",
    )  # fmt: skip


def _rename(data: dict[str, object], **names: str) -> None:
    for old, new in names.items():
        if old in data:
            data[new] = data.pop(old)
