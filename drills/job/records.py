"""What a rank writes down of its steps, a line each, as the drill compares them: exact, and whole up to the last step."""

import hashlib
import json
import time
from pathlib import Path
from typing import Any

import torch


class Records:
    """`<folder>/rank-R.attempt-A.jsonl`. Without a folder nothing is written."""

    def __init__(self, folder: str | None, rank: int, attempt: int) -> None:
        self._file = None
        if folder:
            path = Path(folder)
            path.mkdir(parents=True, exist_ok=True)
            self._file = (path / f"rank-{rank}.attempt-{attempt}.jsonl").open("a", buffering=1, encoding="utf-8")

    def step(self, step: int, *, loss: float, grad_norm: float, samples: list[int], begin: float, end: float) -> None:
        """A finished step; loss and norm as hexadecimal floats, so that every bit counts; times monotonic seconds."""
        self._write(
            {"step": step, "loss": loss.hex(), "grad_norm": grad_norm.hex(), "samples": samples, "begin": begin, "end": end}
        )

    def event(self, name: str, **data: Any) -> None:
        """Anything else."""
        self._write({"event": name, "t": time.monotonic()} | data)

    def _write(self, entry: dict[str, Any]) -> None:
        if self._file is not None:
            self._file.write(json.dumps(entry) + "\n")


def state_digest(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> str:
    """BLAKE2b over every bit of the parameters and of the optimizer's moments."""
    state = hashlib.blake2b(digest_size=16)
    for parameter in model.parameters():
        state.update(parameter.detach().contiguous().view(torch.uint8).numpy())
        for _, moment in sorted(optimizer.state[parameter].items()):
            state.update(moment.detach().reshape(-1).view(torch.uint8).numpy())
    return state.hexdigest()
