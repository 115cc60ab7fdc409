"""Jobs that are on their way back, and the marks of that way, until they are written."""

from typing import Any

from detectors.witness import split
from detectors.witness.numbers import CONFIRMED_STATES
from outrider.signals import Signal


class Recoveries:
    """`look` at the incidents' pictures says which jobs are coming back; `hear` marks their way; `take` gives the marks once."""

    def __init__(self) -> None:
        self._of_job: dict[str, list[str]] = {}
        self._marks: dict[tuple[str, str], float] = {}

    def __bool__(self) -> bool:
        """Whether there is a mark to write."""
        return bool(self._marks)

    def look(self, pictures: dict[str, dict[str, Any]]) -> None:
        """Args: pictures, by incident."""
        self._of_job = {}
        for incident, picture in pictures.items():
            if picture.get("state") in CONFIRMED_STATES:
                for job in picture.get("restarts", {}):
                    self._of_job.setdefault(job, []).append(incident)

    def hear(self, signal: Signal, pictures: dict[str, dict[str, Any]]) -> None:
        """A signal of a job that may be coming back."""
        if signal.kind not in ("snapshot", "step") or signal.job is None:
            return
        for incident in self._of_job.get(signal.job, ()):
            if (name := split.mark(pictures[incident], signal)) is not None:
                self._marks.setdefault((incident, name), signal.t)
                if name == "restored":
                    self._marks[incident, name] = signal.t

    def take(self) -> dict[tuple[str, str], float]:
        """(incident, mark) -> time; they are not given again."""
        marks, self._marks = self._marks, {}
        return marks

    def clear(self) -> None:
        """Forgets the marks: another leader has been here."""
        self._marks = {}
