"""What a collector is, and what it may answer: readings, no data, not supported, or an error. Never a healthy-looking zero."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import msgspec

from outrider.config.collectors import CollectorsSection
from outrider.signals import Signal


class CollectorError(Exception):
    """The source is there but cannot be read now; `str(error)` is one line for a person."""


class Sample(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One value for the metrics page. `name` stands in `outrider.metrics`; labels are bounded and say which part it is."""

    name: str
    value: float
    labels: dict[str, str] = {}


class Readings(msgspec.Struct, frozen=True, kw_only=True, tag="readings"):
    """The source was read. `samples` replace the collector's former ones; None leaves them (a reading of events only)."""

    signals: list[Signal] = []
    samples: list[Sample] | None = None


class NoData(msgspec.Struct, frozen=True, tag="no_data"):
    """The source is there and has nothing to say now."""

    reason: str


class NotSupported(msgspec.Struct, frozen=True, tag="not_supported"):
    """This node has no such source. Asked again now and then: devices come and go."""

    reason: str


Outcome = Readings | NoData | NotSupported


class LocalRank(msgspec.Struct, frozen=True, kw_only=True):
    """A rank that the agent knows on this node."""

    job: str
    rank: int
    slot: int
    attempt: int
    pid: int


class News(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent tells its collectors: the local ranks now, and a job that somebody suspects to hang."""

    ranks: list[LocalRank] = []
    suspected_job: str | None = None


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a collector runs. `state_dir` is a folder of its own that outlives the agent; `gpus` and `nics` what `[fleet]` says
    of the node (0 and empty: nothing)."""

    node: str
    boot: str
    state_dir: str
    section: CollectorsSection
    gpus: int = 0
    nics: dict[str, str] = {}


class Note:
    """How a collector says which call it is about to make: if the call does not return, the agent names it."""

    def __call__(self, call: str, **subject: Any) -> None:
        """Args: name of the call; subject keys of a signal (`gpu`, `uuid`, `nic`, `mount`, ..)."""


class Collector(ABC):
    """One source of knowledge about a node. Built and used in a child process of the agent, one call at a time.

    name: of the collector, its flag in the configuration, the label of its metrics.
    interval_seconds: pace of `read`. deadline_seconds: a `read` that takes longer is told as stuck; at most 9, so that it is told
        within 10 s.
    group: collectors of one group share a child; only those that cannot block share one. Empty: a child of its own.
    kill_safe: the child may be killed in the middle of a call. False where that could harm a device.
    """

    name: ClassVar[str]
    interval_seconds: ClassVar[float] = 10.0
    deadline_seconds: ClassVar[float] = 8.0
    group: ClassVar[str] = ""
    kill_safe: ClassVar[bool] = True

    def __init__(self, place: Place, note: Note) -> None:
        self.place, self.note = place, note

    @classmethod
    def wanted(cls, section: CollectorsSection) -> NotSupported | None:
        """Whether the configuration names what this collector reads; if not, it costs no child. Default: it needs no naming."""
        return None

    @classmethod
    def preload(cls) -> None:
        """Imports what is large, where the collector is wanted: called once before the agent forks, so that all share the memory. A
        child that imports for itself pays twice: for what it loads, and for the shared pages that the loading touches."""
        return

    @abstractmethod
    def supported(self) -> NotSupported | None:
        """Whether this node has the source; cheap."""

    @abstractmethod
    def read(self, now: float) -> Outcome:
        """Reads the source once. `now`: monotonic seconds. Raises CollectorError."""

    def fileno(self) -> int | None:
        """A descriptor that can be read when there is news, so that `read` is called at once; None: only at the interval."""
        return None

    def handed_over(self) -> None:
        """The last reading has reached the agent: a cursor may move past it. Kept cheap."""
        return

    def told(self, news: News) -> None:
        """The agent tells of its ranks. Kept cheap."""
        return

    def close(self) -> None:
        """Gives back what the collector holds open."""
        return

    def signal(self, now: float, kind: str, value: float | int | str | None = None, **fields: Any) -> Signal:
        """A signal of this node and collector."""
        return Signal(t=now, kind=kind, value=value, node=self.place.node, source=self.name, **fields)
