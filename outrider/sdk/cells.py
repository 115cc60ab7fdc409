"""What stands in the cells of the progress page (`outrider.sdk.page`): the words, their codes, and a value for each cell.

All times are CLOCK_MONOTONIC nanoseconds. A float that nobody told is NaN, a step that does not exist is -1.
"""

import math
from dataclasses import dataclass
from typing import Final, Literal

Phase = Literal["init", "compile", "train", "data", "checkpoint", "eval", "idle", "end"]
Command = Literal["none", "copy", "publish", "drop", "exit"]
Ack = Literal["none", "working", "done", "failed"]
Situation = Literal["running", "stalled", "exception", "sigterm", "leaving"]
Farewell = Literal["none", "end", "exception", "sigterm", "told", "fenced"]

#: Order is the code on the page: append only.
PHASE_CODES: Final[tuple[Phase, ...]] = ("init", "compile", "train", "data", "checkpoint", "eval", "idle", "end")
COMMAND_CODES: Final[tuple[Command, ...]] = ("none", "copy", "publish", "drop", "exit")
ACK_CODES: Final[tuple[Ack, ...]] = ("none", "working", "done", "failed")
SITUATION_CODES: Final[tuple[Situation, ...]] = ("running", "stalled", "exception", "sigterm", "leaving")
FAREWELL_CODES: Final[tuple[Farewell, ...]] = ("none", "end", "exception", "sigterm", "told", "fenced")

#: What a step's `figures` are, in order.
FIGURES: Final = ("loss", "grad_norm", "lr", "tokens", "data_s", "compute_s", "wait_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerCell:
    """What the training thread told. `open` is the step in flight (-1: none), `step` the last finished one (-1: none).

    `motion` is odd while the optimizer, or what follows it in the step, may be changing the state.
    """

    open: int = -1
    open_begin_ns: int = 0
    motion: int = 0
    step: int = -1
    begin_ns: int = 0
    end_ns: int = 0
    progress: int = 0
    phase_ns: int = 0
    phase: Phase = "init"
    loss: float = math.nan
    grad_norm: float = math.nan
    lr: float = math.nan
    tokens: float = math.nan
    data_s: float = math.nan
    compute_s: float = math.nan
    wait_s: float = math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class SideCell:
    """What the side thread told. `labels`: steps of the whole copies in the two halves of the copy area (-1: none)."""

    beat_ns: int = 0
    ack: int = 0
    ack_state: Ack = "none"
    pid: int = 0
    rank: int = -1
    world: int = 0
    labels: tuple[int, int] = (-1, -1)
    situation: Situation = "running"
    farewell: Farewell = "none"
    exit_code: int = 0
    median_ns: int = 0
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandCell:
    """One command. `step` None: the newest; `ranks` are all that were given it together (empty: everybody)."""

    number: int
    command: Command
    step: int | None = None
    fence: int = 0
    deadline_ns: int = 0
    incident: str = ""
    ranks: tuple[int, ...] = ()
