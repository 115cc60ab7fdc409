"""NCCL RAS: NCCL's own view of its ranks, which answers while kernels hang. Asked when a job is suspected, never on a timer.

Each question costs the job a small collective over RAS's own ring: only the node of rank 0 asks (if it is lost, the reason of the
hang is known), and only a lag that two answers show alike is told. Witnesses: `job.hang`, `job.desync`. Rights: none (the port
is local and open). Source: NCCL's documentation of RAS and its protocol version 2 (text; JSON from 2.28.7);
`outrider/parsers/ras.py` reads the answers.
"""

import socket
import time
from typing import Any, ClassVar

from collectors.frame.types import Collector, CollectorError, News, Note, NotSupported, Outcome, Place, Readings
from outrider.config.collectors import CollectorsSection
from outrider.parsers.ras import RasPoll, RasRank, parse_ras
from outrider.signals import Signal

#: RAS gives a silent process 5 s; the answer follows.
ANSWER_SECONDS = 7.0
#: Between the two questions: counts are of launched operations, so healthy ranks differ for a moment.
BETWEEN_SECONDS = 10.0
ANSWER_BYTES_MAX = 16 << 20
#: Signals of one answer: a rack of 1,000 ranks that is gone needs no more to be believed.
TOLD_MAX = 64


def ask(address: str, seconds: float = ANSWER_SECONDS) -> str:
    """One verbose status of RAS at `host:port`, in JSON if it can. Raises CollectorError."""
    host, _, port = address.rpartition(":")
    until = time.monotonic() + seconds
    try:
        with socket.create_connection((host, int(port)), timeout=seconds) as channel:
            _say(channel, "CLIENT PROTOCOL 2", until)
            _say(channel, "SET FORMAT json", until)  # an older server answers with an error and stays with text
            channel.sendall(b"VERBOSE STATUS\n")
            parts, size = [], 0
            while size < ANSWER_BYTES_MAX and time.monotonic() < until:
                channel.settimeout(max(0.1, until - time.monotonic()))
                part = channel.recv(65536)
                if not part:
                    break
                parts.append(part)
                size += len(part)
    except (OSError, ValueError) as error:
        raise CollectorError(f"NCCL RAS at {address}: {error}") from None
    return b"".join(parts).decode("utf-8", "replace")


class Ras(Collector):
    """See the module."""

    name: ClassVar[str] = "ras"
    group: ClassVar[str] = "services"
    interval_seconds: ClassVar[float] = 1.0
    deadline_seconds: ClassVar[float] = 9.0

    def __init__(self, place: Place, note: Note) -> None:
        super().__init__(place, note)
        self._news = News()
        self._suspected: str | None = None
        self._first: RasPoll | None = None
        self._again_at = 0.0

    @classmethod
    def wanted(cls, section: CollectorsSection) -> NotSupported | None:
        return None if section.ras_address else NotSupported("[collectors] ras_address is not set")

    def supported(self) -> NotSupported | None:
        return self.wanted(self.place.section)

    def told(self, news: News) -> None:
        self._news = news
        ours = any(rank.job == news.suspected_job and rank.rank == 0 for rank in news.ranks)
        if ours and self._suspected is None:
            self._suspected, self._first, self._again_at = news.suspected_job, None, 0.0

    def read(self, now: float) -> Outcome:
        if self._suspected is None or now < self._again_at:
            return Readings()
        self.note("NCCL RAS")
        job = self._suspected
        polls = parse_ras(ask(self.place.section.ras_address))
        if not polls:
            self._suspected = None
            raise CollectorError("NCCL RAS gave no answer that makes sense")
        if self._first is None:
            self._first, self._again_at = polls[-1], now + BETWEEN_SECONDS
            return Readings(signals=self._tell_dead(polls[-1], job, now))
        signals = self._tell_lag(self._first, polls[-1], job, now)
        self._suspected = self._first = None
        return Readings(signals=signals)

    def _tell_dead(self, poll: RasPoll, job: str, now: float) -> list[Signal]:
        """Processes that RAS cannot reach, as what the asking rank says of its peers; many tell no more than some do."""
        found = [(one, "dead") for one in poll.dead] + [(one, "missing") for one in poll.missing]
        signals = []
        for one, word in found[:TOLD_MAX]:
            data: dict[str, Any] = {"library": "nccl", "status": word, "by": "ras", "peer": one.node}
            if one.rank is not None:
                data["peer_rank"] = one.rank
            signals.append(self._signal(job, 0, one, data, now))
        return signals

    def _tell_lag(self, first: RasPoll, second: RasPoll, job: str, now: float) -> list[Signal]:
        """Ranks whose count stood still between the answers, behind a front that stands as well."""
        signals = []
        for group, ranks in second.lagging.items():
            before = {one.rank: one.count for one in first.lagging.get(group, [])}
            front = second.front.get(group)
            if front is None or front != first.front.get(group):
                continue
            for one in ranks:
                if one.rank is not None and one.count is not None and before.get(one.rank) == one.count:
                    data = {
                        "group": group,
                        "last_enqueued": one.count,
                        "front": front,
                        "op": second.operation.get(group),
                        "by": "ras",
                    }
                    signals.append(self._signal(job, one.rank, one, data, now, kind="collective_timeout"))
        return signals[:TOLD_MAX]

    def _signal(
        self, job: str, rank: int, one: RasRank, data: dict[str, Any], now: float, kind: str = "collective_error"
    ) -> Signal:
        local = next((rank for rank in self._news.ranks if rank.job == job), None)
        if local is not None:
            data["attempt"] = local.attempt
        return self.signal(now, kind, job=job, rank=rank, process=one.pid, text=one.text[:500], data=data)


def _say(channel: socket.socket, line: str, until: float) -> str:
    """Sends one line and reads one line."""
    channel.settimeout(max(0.1, until - time.monotonic()))
    channel.sendall(line.encode() + b"\n")
    answer = b""
    while not answer.endswith(b"\n") and len(answer) < 4096:
        part = channel.recv(1)
        if not part:
            raise OSError("it closed the connection")
        answer += part
    return answer.decode("utf-8", "replace").strip()
