"""What a step costs on the training thread when nothing is wrong: an empty step in a tight loop, and inside a real step.

Run it as `python bench/sdk_step.py [LOOPS]`. It prints medians in microseconds, and the machine; exit 1 if the loop's median is
above the promise of 20.
"""

import os
import platform
import statistics
import sys
import time

import torch

import outrider
from outrider.sdk.settings import Place

PROMISE_US = 20.0


def main() -> int:
    loops = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256))
    optimizer = torch.optim.AdamW(model.parameters())
    run = outrider.attach(model=model, optimizer=optimizer, seed=1, place=Place())
    alone = _empty_loop(run, loops)
    inside = _real_steps(run, model, optimizer, 300)
    run.close()
    print(f"machine: {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, torch {torch.__version__}")
    print(f"tight loop of {loops}: median {alone:.1f} us a step (promise: {PROMISE_US:.0f})")
    print(f"inside a real step of about 5 ms: median {inside:.1f} us a step")
    return 0 if alone <= PROMISE_US else 1


def _empty_loop(run: outrider.Run, loops: int) -> float:
    times = []
    clock = time.perf_counter_ns
    for _ in range(loops):
        start = clock()
        with run.step():
            pass
        times.append(clock() - start)
    return statistics.median(times) / 1000


def _real_steps(run: outrider.Run, model: torch.nn.Module, optimizer: torch.optim.Optimizer, loops: int) -> float:
    """Enter and leave are timed apart; the caches are as cold as training leaves them."""
    times = []
    clock = time.perf_counter_ns
    batch = torch.randn(512, 256)
    for _ in range(loops):
        step = run.step()
        start = clock()
        step.__enter__()
        entered = clock() - start
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        run.report(loss=1.0)
        start = clock()
        step.__exit__(None, None, None)
        times.append(clock() - start + entered)
    return statistics.median(times) / 1000


if __name__ == "__main__":
    sys.exit(main())
