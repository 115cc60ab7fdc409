"""The text that is learnt, and the order in which it is read: every sample once an epoch, and the position can be saved."""

import random
from typing import Any, Final

import torch

#: Characters in a sample, beside the one that is to be told next.
CONTEXT: Final = 64
#: A sample's window is shifted by up to so many characters at random: a stand-in for augmentation, so that a resume that gets
#: the random state of Python or numpy wrong is found out.
_SHIFT_MAX: Final = 8


class Text:
    """The help topics of `pydoc_data.topics`, which every Python brings along, as codes of the characters that occur."""

    def __init__(self) -> None:
        from pydoc_data.topics import topics

        text = "\n".join(topics[name] for name in sorted(topics))
        alphabet = sorted(set(text))
        assert len(alphabet) <= 256, "a byte a character"
        table = {ord(character): place for place, character in enumerate(alphabet)}
        self.characters = len(alphabet)
        self.codes = torch.frombuffer(bytearray(text.translate(table), "latin-1"), dtype=torch.uint8).to(torch.int64)
        self.samples = (len(self.codes) - CONTEXT - 1 - 2 * _SHIFT_MAX) // CONTEXT


class Order:
    """A new order of the samples each epoch, the same on every rank; rank r of n takes its part of each batch."""

    def __init__(self, samples: int, batch: int, rank: int, world: int, seed: int) -> None:
        self._samples, self._batch, self._rank, self._world, self._seed = samples, batch, rank, world, seed
        self.batches = samples // (batch * world)
        self.set_epoch(0)

    def set_epoch(self, epoch: int) -> None:
        """Shuffles for this epoch."""
        self.epoch = epoch
        generator = torch.Generator().manual_seed(self._seed * 1_000_003 + epoch)
        self._order = torch.randperm(self._samples, generator=generator).tolist()

    def of(self, batch: int) -> list[int]:
        """This rank's samples of a batch (0-based within the epoch)."""
        start = (batch * self._world + self._rank) * self._batch
        return list(self._order[start : start + self._batch])


class Batches:
    """Reads one batch after another; `state_dict` is the position after the last one read."""

    def __init__(self, text: Text, order: Order) -> None:
        self._text, self.order = text, order
        self._next = 0

    def read(self) -> tuple[list[int], torch.Tensor, torch.Tensor]:
        """The samples' numbers, the characters, and the characters that follow: int64, batch x CONTEXT."""
        import numpy

        if self._next == self.order.batches:
            self.order.set_epoch(self.order.epoch + 1)
            self._next = 0
        ids = self.order.of(self._next)
        self._next += 1
        starts = [one * CONTEXT + random.randrange(_SHIFT_MAX) + int(numpy.random.randint(_SHIFT_MAX)) for one in ids]  # noqa: S311
        codes = self._text.codes
        inputs = torch.stack([codes[start : start + CONTEXT] for start in starts])
        targets = torch.stack([codes[start + 1 : start + 1 + CONTEXT] for start in starts])
        return ids, inputs, targets

    def state_dict(self) -> dict[str, Any]:
        """Where the reading stands."""
        return {"epoch": self.order.epoch, "next": self._next}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from there."""
        self.order.set_epoch(int(state["epoch"]))
        self._next = int(state["next"])
