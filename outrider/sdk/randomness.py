"""Random state that can be had again after a host is lost: derived from (seed, slot, step), or saved with the state.

Derived (`reseed=True`): at the end of each step every generator is seeded for what comes next (augmentation in the data loader
draws between the steps), and at the beginning of the step torch's once more (dropout), each time from seed, slot, step and
place. It costs some microseconds, and nothing needs to be stored: a dead slot's random state is known to whoever knows its
number. What an evaluation draws, or torch code between two steps, cannot shift the next step's numbers.
"""

import random
import sys
from typing import Any, Final

_MASK: Final = (1 << 64) - 1
#: The two places in a step's life at which generators are seeded.
IN_STEP: Final = 0
BETWEEN: Final = 1


def derive(seed: int, slot: int, step: int, place: int) -> int:
    """63 well mixed bits (the finaliser of splitmix64, Steele et al. 2014, over each number in turn)."""
    value = seed & _MASK
    for number in (slot, step, place):
        value = (value + 0x9E3779B97F4A7C15 + number) & _MASK
        value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
        value ^= value >> 31
    return value >> 1


class Randomness:
    """All generators of this process: torch (CPU, and CUDA where it is in use), Python, numpy where it is imported."""

    def __init__(self, seed: int, slot: int, *, reseed: bool) -> None:
        import torch

        self._torch = torch
        self._cpu = torch.default_generator
        self._seed, self._slot, self.reseeds = seed, slot, reseed
        self._seed_numpy: Any = None

    @property
    def mode(self) -> dict[str, Any]:
        """What the MANIFEST says: how, and from which seed."""
        return {"mode": "reseed", "seed": self._seed} if self.reseeds else {"mode": "saved"}

    def kinds(self) -> list[str]:
        """The kinds of generators there are in this process."""
        found = ["python", "torch"]
        if "numpy" in sys.modules:
            found.append("numpy")
        if self._torch.cuda.is_available() and self._torch.cuda.is_initialized():
            found.append("cuda")
        return found

    def seed_step(self, step: int) -> None:
        """Seeds torch's generators for the inside of a step: a third of the price of all."""
        self._seed_torch(derive(self._seed, self._slot, step, IN_STEP))

    def seed_all(self, step: int) -> None:
        """Seeds every generator for what comes before this step and in it."""
        value = derive(self._seed, self._slot, step, BETWEEN)
        self._seed_torch(value)
        random.seed(value)
        if self._seed_numpy is not None:
            self._seed_numpy(value & 0xFFFFFFFF)
        elif (numpy := sys.modules.get("numpy")) is not None:
            self._seed_numpy = getattr(getattr(numpy, "random", None), "seed", None)
            if self._seed_numpy is not None:
                self._seed_numpy(value & 0xFFFFFFFF)

    def _seed_torch(self, value: int) -> None:
        self._cpu.manual_seed(value)
        if self._torch.cuda.is_initialized():
            self._torch.cuda.manual_seed(value)

    def save(self) -> dict[str, Any]:
        """The state of every generator (about 0.1 ms): for jobs that do not reseed."""
        state: dict[str, Any] = {"torch": self._torch.get_rng_state(), "python": random.getstate()}
        if (numpy := sys.modules.get("numpy")) is not None:
            state["numpy"] = numpy.random.get_state()
        if self._torch.cuda.is_initialized():
            state["cuda"] = self._torch.cuda.get_rng_state()
        return state

    def load(self, state: dict[str, Any]) -> None:
        """Sets what `save` gave."""
        self._torch.set_rng_state(state["torch"])
        random.setstate(state["python"])
        if "numpy" in state:
            import numpy

            numpy.random.set_state(state["numpy"])
        if "cuda" in state:
            self._torch.cuda.set_rng_state(state["cuda"])
