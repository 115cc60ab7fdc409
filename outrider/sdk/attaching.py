"""`attach`: from a script's objects and the environment to a `Run`."""

import atexit
import sys
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from outrider.sdk.randomness import Randomness
from outrider.sdk.run import Run
from outrider.sdk.settings import Place, Plan
from outrider.sdk.subject import Subject


def attach(
    *,
    model: Any = None,
    optimizer: Any = None,
    scheduler: Any = None,
    data: Any = None,
    sampler: Any = None,
    scaler: Any = None,
    extra: Any = None,
    seed: int = 0,
    reseed: bool = True,
    save_every_steps: int | None = None,
    save_every_seconds: float | None = None,
    keep: int = 3,
    shards: int = 1,
    peers: Mapping[str, tuple[int, str | None]] | None = None,
    place: Place | None = None,
    plan: Plan | None = None,
) -> Run:
    """Attaches Outrider to this rank's training, after the process group is made and before the first step.

    Args:
        model, optimizer, scheduler, scaler, extra: what is saved; each one object with `state_dict`, a list or a dict of them.
        data: has `state_dict()` (the position, small and cheap: it is taken at the end of every step) and `load_state_dict`.
        sampler: has `epoch` and `set_epoch`.
        seed: of the job; every generator is seeded from it, the slot and the step.
        reseed: False leaves the generators alone and saves their state; then a lost host's random state is lost with it.
        save_every_steps, save_every_seconds: periodic snapshots; the second only where one rank holds everything.
        keep: snapshots kept, at least 1.
        shards: how many ranks it takes to hold the state once; 1: every rank has all of it (DDP).
        peers: `address:port` -> (rank, its node's address): whom a transport error blames, where addresses alone do not say.
        place, plan: instead of the environment and of the arguments above (tests, launchers).

    Returns:
        The run. It monitors, or it does not: what cannot be done is logged, and training goes on.
    """
    place = place or Place.of()
    plan = plan or Plan(
        seed=seed, reseed=reseed, every_steps=save_every_steps, every_seconds=save_every_seconds, keep=max(1, keep),
        shards=max(1, shards),
    )  # fmt: skip
    subject = Subject(model=model, optimizer=optimizer, scheduler=scheduler, scaler=scaler, data=data, sampler=sampler, extra=extra)
    run = Run(subject, place, plan, Randomness(plan.seed, place.slot, reseed=plan.reseed))
    run.peers = dict(peers or {})
    atexit.register(run.close)
    _watch_uncaught(run)
    return run


def _watch_uncaught(run: Run) -> None:
    """An exception outside a step (evaluation, data loading) that ends the script is a fault of this rank as well."""
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if threading.current_thread() is threading.main_thread():
            run._failed(error)
        before(kind, error, trace)

    sys.excepthook = hook
