"""One rank of the drill's job: `main(os.environ)` in a child forked from a parent that preloaded torch, or `python -m`.

Environment: `RANK WORLD_SIZE MASTER_ADDR MASTER_PORT OUTRIDER_*` as everywhere, and

| name | meaning |
| --- | --- |
| `DRILL_STEPS` | steps of the whole run (200) |
| `DRILL_SEED` | seed of everything (1) |
| `DRILL_OUT` | folder of the records; absent: none |
| `DRILL_ADDRESS` | address that gloo binds to |
| `DRILL_PACE` | least seconds from one step's begin to the next one's (0) |
| `DRILL_SAVE_EVERY` | steps between periodic snapshots; 0: none (50) |
| `DRILL_PG_TIMEOUT` | seconds until a collective that hangs raises (120) |

The resume is exact because the layout is fixed: one thread, the slot is the rank, and gradients summed in one order. DDP regroups
its buckets after the first backward pass, and a resumed run's first step would add in another order than the same step of a run
that was never disturbed; so every run, resumed or not, begins with one pass whose gradients are thrown away.
"""

import math
import os
import sys
import time
from collections.abc import Mapping
from typing import Any, Final

import torch
from torch.nn.parallel import DistributedDataParallel

import outrider
from drills.job import endpoints, group
from drills.job.model import CharacterModel
from drills.job.records import Records, state_digest
from drills.job.text import CONTEXT, Batches, Order, Text

BATCH: Final = 8
LEARNING_RATE: Final = 3e-3
WARM_UP_STEPS: Final = 20
CLIP: Final = 1.0


def main(env: Mapping[str, str]) -> int:
    """Trains to the end. Returns the exit status."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    seed = int(env.get("DRILL_SEED", "1"))
    rank, world = int(env["RANK"]), int(env["WORLD_SIZE"])
    group.join(env, float(env.get("DRILL_PG_TIMEOUT", "120")))
    torch.manual_seed(seed)
    text = Text()
    model = DistributedDataParallel(CharacterModel(text.characters))
    _settle(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, _warm_up)
    batches = Batches(text, Order(text.samples, BATCH, rank, world, seed))
    run = outrider.attach(
        model=model, optimizer=optimizer, scheduler=scheduler, data=batches, sampler=batches.order, seed=seed,
        save_every_steps=int(env.get("DRILL_SAVE_EVERY", "50")) or None, peers=endpoints.peers(env.get("DRILL_ADDRESS")),
    )  # fmt: skip
    records = Records(env.get("DRILL_OUT"), rank, run.place.attempt)
    with run:
        restored = run.restore()
        if restored is not None:
            records.event("restored", step=restored)
        _train(run, model, optimizer, scheduler, batches, records, env)
        records.event("end", digest=state_digest(model, optimizer), step=run.finished)
        torch.distributed.barrier()  # nobody's farewell looks to a slower peer like a death
    torch.distributed.destroy_process_group()
    return 0


def _train(
    run: outrider.Run,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    scheduler: Any,
    batches: Batches,
    records: Records,
    env: Mapping[str, str],
) -> None:
    steps, pace = int(env.get("DRILL_STEPS", "200")), float(env.get("DRILL_PACE", "0"))
    model.train()
    while run.next_step < steps:
        begin = time.monotonic()
        ids, inputs, targets = batches.read()
        with run.step() as step:
            number = step.number
            optimizer.zero_grad(set_to_none=True)
            loss = model(inputs, targets)
            loss.backward()
            norm = float(torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP))
            optimizer.step()
            scheduler.step()
            step.report(loss=loss.item(), grad_norm=norm, tokens=BATCH * CONTEXT)
        end = time.monotonic()
        records.step(number, loss=loss.item(), grad_norm=norm, samples=ids, begin=begin, end=end)
        if (rest := begin + pace - end) > 0:
            time.sleep(rest)


def _settle(model: torch.nn.Module) -> None:
    """One pass for nothing, after which DDP's buckets stay as they are."""
    nothing = torch.zeros(1, CONTEXT, dtype=torch.int64)
    model(nothing, nothing).backward()
    model.zero_grad(set_to_none=True)


def _warm_up(step: int) -> float:
    """Factor of the learning rate: up over the first steps, then down as the square root."""
    return min((step + 1) / WARM_UP_STEPS, math.sqrt(WARM_UP_STEPS / (step + 1)))


if __name__ == "__main__":
    sys.exit(main(os.environ))
