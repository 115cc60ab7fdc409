"""Steps of trainers without the SDK, from a Prometheus page or a TensorBoard folder.

Witnesses: `job.hang`, `job.loss_*`, and the lockstep proof of life where the job is declared synchronous. Cost: one page, or the
new bytes of one file, each 2 s. Rights: to read them. Text and JSON-lines logs are read by the collector `logs`.
Source: the trainer's own names of metrics; see `collectors/tensorboard.py` for the file form.
"""

import os
from pathlib import Path
from typing import Any, ClassVar

from collectors.frame.files import list_folder
from collectors.frame.types import Collector, CollectorError, Note, NotSupported, Outcome, Place, Readings
from collectors.http_text import Fetcher
from collectors.tensorboard import BadRecordError, Scalar, parse_event, split_records
from outrider.config.collectors import CollectorsSection
from outrider.parsers.exposition import BadSampleError, ExpositionReader
from outrider.signals import Signal

LOOK_SECONDS = 2.0
FETCH_SECONDS = 4.0
BLOCK_BYTES = 1 << 20
#: Endings of names, of metrics and of tags, that mean a step and its figures; the first that fits is taken.
_STEP = ("train_step", "global_step", "training_step", "iteration", "step")
_FIGURES = {
    "loss": ("train_loss", "train/loss", "training_loss", "lm loss", "loss"),
    "grad_norm": ("grad_norm", "grad-norm", "gradient_norm"),
    "lr": ("learning_rate", "learning-rate", "lr"),
    "tokens": ("consumed_tokens", "tokens_total", "tokens"),
}


def name_of(name: str) -> str | None:
    """Which figure (`step`, `loss`, ..) a metric or tag is, or None."""
    low = name.lower().removesuffix("_total")
    for figure, endings in {"step": _STEP, **_FIGURES}.items():
        if any(low == ending or low.endswith(("/" + ending, "_" + ending, "-" + ending, ":" + ending)) for ending in endings):
            return figure
    return None


class EventFolder:
    """The newest event file of a folder, read as it grows. One that is there at the start is read from its end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path: Path | None = None
        self._offset = 0
        self._first = True

    def scalars(self) -> list[Scalar]:
        """New scalars. Raises BadRecordError, OSError."""
        files = [name for name in list_folder(self._folder) if "tfevents" in name]
        if not files:
            self._first = False
            return []
        newest = max((self._folder / name for name in files), key=lambda path: (path.stat().st_mtime_ns, path.name))
        if newest != self._path:
            self._path, self._offset = newest, newest.stat().st_size if self._first else 0
        self._first = False
        with open(newest, "rb") as file:
            if os.fstat(file.fileno()).st_size < self._offset:
                self._offset = 0
            file.seek(self._offset)
            records, taken = split_records(file.read(BLOCK_BYTES))
        self._offset += taken
        return [scalar for record in records for scalar in parse_event(record)]


class Trainer(Collector):
    """See the module."""

    name: ClassVar[str] = "trainer"
    group: ClassVar[str] = "files"
    interval_seconds: ClassVar[float] = LOOK_SECONDS

    def __init__(self, place: Place, note: Note) -> None:
        super().__init__(place, note)
        self._fetcher = Fetcher(FETCH_SECONDS)
        self._reader = ExpositionReader()
        folder = place.section.tensorboard_dir
        self._folder = EventFolder(Path(folder)) if folder else None
        self._step = -1

    @classmethod
    def wanted(cls, section: CollectorsSection) -> NotSupported | None:
        return (
            None
            if section.train_page_url or section.tensorboard_dir
            else NotSupported("[collectors] train_page_url and tensorboard_dir are not set")
        )

    def supported(self) -> NotSupported | None:
        return self.wanted(self.place.section)

    def close(self) -> None:
        self._fetcher.close()

    def read(self, now: float) -> Outcome:
        signals = []
        if self._folder is not None:
            self.note("TensorBoard folder")
            signals += self._read_folder(self._folder, now)
        if self.place.section.train_page_url:
            self.note("trainer's page")
            signals += self._read_page(now)
        return Readings(signals=signals)

    def _read_folder(self, folder: EventFolder, now: float) -> list[Signal]:
        try:
            scalars = folder.scalars()
        except (BadRecordError, OSError) as error:
            raise CollectorError(f"{self.place.section.tensorboard_dir}: {error}") from None
        steps: dict[int, dict[str, Any]] = {}
        for scalar in scalars:
            figure = name_of(scalar.tag)
            if figure is not None and figure != "step":
                steps.setdefault(scalar.step, {}).setdefault(figure, scalar.value)
        newest = max(steps, default=-1)
        return self._tell(newest, steps[newest], now) if steps else []

    def _read_page(self, now: float) -> list[Signal]:
        figures: dict[str, float] = {}
        for line in (self._fetcher.get(self.place.section.train_page_url) or "").splitlines():
            try:
                sample = self._reader.feed(line)
            except BadSampleError:
                continue
            if sample is not None and sample.value is not None and (figure := name_of(sample.name)):
                figures.setdefault(figure, sample.value)
        step = figures.pop("step", None)
        if step is None:
            raise CollectorError(f"{self.place.section.train_page_url}: no metric of it is a step")
        return self._tell(int(step), figures, now)

    def _tell(self, step: int, figures: dict[str, Any], now: float) -> list[Signal]:
        if step == self._step:
            return []
        self._step = step
        return [self.signal(now, "step", step, job=self.place.section.train_job or None, data=figures)]
