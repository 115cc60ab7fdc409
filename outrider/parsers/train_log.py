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

#: Bytes of a line that are decoded at most: a character has up to four.
LINE_BYTES_MAX: Final = 4 * LINE_CHARS_MAX
#: A line that has one of these may be a step line; it is read by `parse_step` before the rules.
_STEP_WORDS: Final = ("loss", "Loss", "grad", "iteration")


#: Short texts that several gates share: a line is searched for these in place of each. None may hold a digit.
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
_SEARCHED: Final = tuple(
    dict.fromkeys(
        text.encode() for text in (*_STEP_WORDS, *(next((hub for hub in _HUBS if hub in literal), literal) for literal, _ in GATES))
    )
)
_DIGITS: Final = b"0123456789"
#: Forms of ordinary lines that are remembered, and the longest that is.
FORMS_MAX: Final = 8192
FORM_BYTES_MAX: Final = 400
#: New forms in one block after which the block is searched as a whole.
MISSES_MAX: Final = 64


class Scanner:
    """Finds the records in blocks of a log, at the speed of a plain search.

    Most lines of a log are one of a few forms that differ in their numbers only. A form (the line without its digits) that has none
    of the literals is remembered, and the next line of that form costs one look-up.
    """

    def __init__(self, year: int = YEAR_UNKNOWN) -> None:
        self._year = year
        self._ordinary: set[bytes] = set()

    def feed(self, block: bytes) -> list[tuple[int, Record]]:
        """All records of a block of whole lines, each with its line's number in the block, from 0."""
        found = []
        ordinary = self._ordinary
        searched, misses = _SEARCHED, 0
        for number, line in enumerate(block.split(b"\n")):
            form = line.translate(None, _DIGITS)
            if form in ordinary:
                continue
            for literal in searched:
                if literal in line:
                    text = line[:LINE_BYTES_MAX].decode("utf-8", "replace")[:LINE_CHARS_MAX]
                    if (record := _parse(text, self._year)) is not None:
                        found.append((number, record))
                    break
            else:
                misses += 1
                if misses == MISSES_MAX:  # forms do not repeat here: look for the few literals that the block has at all
                    searched = tuple(literal for literal in _SEARCHED if literal in block)
                if len(form) <= FORM_BYTES_MAX:
                    if len(ordinary) >= FORMS_MAX:
                        ordinary.clear()
                    ordinary.add(form)
        return found


def parse_line(line: str, year: int = YEAR_UNKNOWN) -> Record | None:
    """What the line says, or None.

    Args:
        line: one line, without its newline.
        year: the year of stamps that have none.
    """
    return _parse(line[:LINE_CHARS_MAX], year)


def _parse(line: str, year: int) -> Record | None:
    for word in _STEP_WORDS:
        if word in line:
            if (record := parse_step(line, year)) is not None:
                return record
            break
    return first_record(line, GATES, year)


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
