"""What surrounds one optimizer step in a training script."""

from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from outrider.sdk.run import Run


class Step:
    """What `with run.step():` gives: one object, used again for each step."""

    __slots__ = ("_run",)

    def __init__(self, run: "Run") -> None:
        self._run = run

    @property
    def number(self) -> int:
        """The step in flight; the first is 0."""
        return self._run.next_step

    def report(self, **figures: float) -> None:
        """See `Run.report`."""
        self._run.report(**figures)

    def __enter__(self) -> "Step":
        self._run._begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            self._run._end()
        else:
            self._run._failed(error)
