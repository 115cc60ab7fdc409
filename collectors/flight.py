"""Flight records: dumps of PyTorch's process groups, picked up when they appear, and asked for when a job is suspected to hang.

A rank writes its dump to a file by itself at a time-out; on suspicion it is asked through its pipe (the environment variable
TORCH_NCCL_DEBUG_INFO_PIPE_FILE), which gives the collectives without stacks first. Witnesses: `job.hang`, `job.desync`. Cost: a
look at one folder each second. Rights: to read the files, to write to the pipes. Source: PyTorch's flight recorder;
`outrider/parsers/flight.py` reads the pickles without executing anything.
"""

import contextlib
import os
import re
from pathlib import Path
from typing import Any, ClassVar

from collectors.frame.files import list_folder
from collectors.frame.types import Collector, News, Note, NotSupported, Outcome, Place, Readings
from outrider.config.collectors import CollectorsSection
from outrider.errors import InputError
from outrider.parsers.flight import RankDump, make_dump, read_json, read_pickle
from outrider.signals import Signal

LOOK_SECONDS = 1.0
#: A dump of 2,000 entries with stacks is some MB.
DUMP_BYTES_MAX = 32 << 20
#: A file that grows is still being written: it is read when it has rested so long.
REST_SECONDS = 0.5
#: A job is asked at most this often.
ASK_SECONDS = 30.0
FILES_MAX = 256
_RANK = re.compile(r"(\d+)(?:\.json|\.pickle|\.pkl)?$")


def summarise(dump: RankDump) -> dict[str, dict[str, Any]]:
    """The `data` of a `flight_record`: for each group what the rank enqueued, started and completed last, and its operation."""
    groups: dict[str, dict[str, Any]] = {
        group: {"enqueued": status.enqueued, "started": status.started, "completed": status.completed}
        for group, status in dump.status.items()
    }
    for call in dump.calls:
        if call.p2p:
            continue
        entry = groups.setdefault(call.group, {"enqueued": -1, "started": -1, "completed": -1})
        if call.group not in dump.status:
            entry["enqueued"] = max(entry["enqueued"], call.seq)
            if call.state in ("started", "completed"):
                entry["started"] = max(entry["started"], call.seq)
            if call.state == "completed":
                entry["completed"] = max(entry["completed"], call.seq)
        if call.seq == entry["enqueued"]:
            entry["op"], entry["shape"] = call.op, call.shape
    return groups


class Flight(Collector):
    """See the module."""

    name: ClassVar[str] = "flight"
    group: ClassVar[str] = "files"
    interval_seconds: ClassVar[float] = LOOK_SECONDS

    def __init__(self, place: Place, note: Note) -> None:
        super().__init__(place, note)
        self._folder = Path(place.section.flight_dir)
        self._seen: dict[str, tuple[int, int]] = {}
        self._resting: dict[str, tuple[tuple[int, int], float]] = {}
        self._first = True
        self._news = News()
        self._ask: str | None = None
        self._asked: dict[str, float] = {}
        self.asked = 0

    @classmethod
    def wanted(cls, section: CollectorsSection) -> NotSupported | None:
        return None if section.flight_dir else NotSupported("[collectors] flight_dir is not set")

    def supported(self) -> NotSupported | None:
        return None if self._folder.is_dir() else NotSupported(f"{self._folder} is not there")

    def told(self, news: News) -> None:
        self._news = news
        if news.suspected_job is not None:
            self._ask = news.suspected_job

    def read(self, now: float) -> Outcome:
        if self._ask is not None:
            self._ask_for_dumps(self._ask, now)
            self._ask = None
        signals = []
        for name in list_folder(self._folder)[:FILES_MAX]:
            path = self._folder / name
            if _RANK.search(name) and self._is_new(path, now):
                self.note("flight record")
                signals += self._read_dump(path, now)
        self._first = False
        return Readings(signals=signals)

    def _is_new(self, path: Path, now: float) -> bool:
        """True once for each dump, when it has come to rest; those that were there before us are old."""
        try:
            status = path.stat()
        except OSError:
            return False
        stamp = (status.st_mtime_ns, status.st_size)
        if self._first:
            self._seen[path.name] = stamp
            return False
        if not path.is_file() or self._seen.get(path.name) == stamp or not 0 < status.st_size <= DUMP_BYTES_MAX:
            return False
        before, since = self._resting.get(path.name, (None, now))
        if before != stamp:
            self._resting[path.name] = (stamp, now)
            return False
        if now - since < REST_SECONDS:
            return False
        self._seen[path.name] = stamp
        self._resting.pop(path.name, None)
        while len(self._seen) > 2 * FILES_MAX:
            del self._seen[next(iter(self._seen))]
        return True

    def _read_dump(self, path: Path, now: float) -> list[Signal]:
        match = _RANK.search(path.name)
        rank = int(match[1]) if match else None
        try:
            content = path.read_bytes()
            raws = read_json(content.decode("utf-8", "replace")) if content[:1] in b"{[" else [read_pickle(content, str(path))]
            dumps = [make_dump(raw, rank, str(path)) for raw in raws]
        except (OSError, InputError):
            return []  # no dump, or half of one: a whole one has another time stamp
        return [self._tell(dump, now) for dump in dumps]

    def _tell(self, dump: RankDump, now: float) -> Signal:
        local = next((one for one in self._news.ranks if one.rank == dump.rank), None)
        data: dict[str, Any] = dict(summarise(dump))
        if local is not None:
            data["attempt"] = local.attempt
        job = local.job if local else self.place.section.train_job or None
        return self.signal(now, "flight_record", job=job, rank=dump.rank, data=data)

    def _ask_for_dumps(self, job: str, now: float) -> None:
        if now - self._asked.get(job, float("-inf")) < ASK_SECONDS:
            return
        self._asked = {job: now}
        pipe = self.place.section.flight_pipe
        for rank in self._news.ranks:
            if pipe and rank.job == job:
                # Not blocking: a rank that does not read has no pipe open, and is left alone.
                with contextlib.suppress(OSError):
                    descriptor = os.open(f"{pipe}{rank.rank}.pipe", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                    try:
                        os.write(descriptor, b"1")
                        self.asked += 1
                    finally:
                        os.close(descriptor)
