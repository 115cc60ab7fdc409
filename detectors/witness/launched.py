"""Who knows a job best: a launcher (or the site's file) says its groups and limits too, nodes only where its ranks sit. Pure."""

from collections import OrderedDict
from collections.abc import Iterable

import msgspec

from outrider.fleet import Job
from outrider.signals import Signal

#: Jobs remembered; the one told least recently goes first.
JOBS_MAX = 256
#: Sources that put a job together from its ranks.
RANK_SOURCES = frozenset({"processes", "agent"})


class Launched:
    """Up to the newest attempt that a launcher told, what nodes say of the job is no news. Of a later attempt they say where its
    ranks sit; the rest stays as the launcher said.

    Args:
        jobs: those of the site's file.
    """

    def __init__(self, jobs: Iterable[Job]) -> None:
        self._attempts: OrderedDict[str, int] = OrderedDict((job.job, job.attempt) for job in jobs)

    def take(self, signal: Signal) -> Signal | None:
        """A whole `job` signal in; what is to be believed of it out, or None."""
        job, attempt = signal.job, signal.value
        if job is None or type(attempt) is not int:
            return signal
        launched = self._attempts.get(job)
        if signal.source in RANK_SOURCES:
            if launched is None:
                return signal
            if attempt <= launched:
                return None
            return msgspec.structs.replace(signal, data={key: value for key, value in signal.data.items() if key != "synchronous"})
        if signal.source == "launcher":
            self._attempts[job] = max(attempt, launched or 0)
            self._attempts.move_to_end(job)
            while len(self._attempts) > JOBS_MAX:
                self._attempts.popitem(last=False)
        return signal

    def forget(self, job: str) -> None:
        """The job has ended: who starts it next may count anew."""
        self._attempts.pop(job, None)
