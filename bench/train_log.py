"""Lines a second that `outrider inspect --kind train_log` reads on one core, on a mixed log: `python bench/train_log.py [lines]`.

CPU time, not wall time, so that other work on the machine disturbs less. The log is 1/7 step lines, 6/7 ordinary text of
trainers, NCCL, kubelet, HTTP and the kernel, and has one incident at its end.
"""

# ruff: noqa: E501 (lines as trainers print them)

import random
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from detectors.inspect.context import Context
from detectors.inspect.kinds import judge_of
from detectors.inspect.sources import Source


def mixed(lines: int, seed: int = 1) -> Iterator[str]:
    """The log's lines."""
    chance = random.Random(seed)

    def one(n: int) -> str:
        match n % 7:
            case 0:
                return (
                    f" [2024-08-01 09:44:56] iteration {n:8d}/  500000 | consumed samples: {n * 128:12d} | elapsed time per iteration (ms): "
                    f"{4000 + chance.random() * 100:.1f} | learning rate: 2.114E-05 | global batch size:   128 | lm loss: {2 + chance.random() / 10:.6E} | "
                    f"loss scale: 1.0 | grad norm: {chance.random():.3f} | number of skipped iterations:   0 | number of nan iterations:   0 |"
                )
            case 1:
                return f"[rank{n % 64}] 2026-11-03 04:04:{n % 60:02d} INFO model forward took {chance.random():.3f} ms on microbatch {n % 32}"
            case 2:
                return f"gn-{n % 99:03d}:7741:7802 [1] NCCL INFO Channel 0{n % 8}/0 : {n % 16}[1] -> {n % 7}[2] via P2P/CUMEM"
            case 3:
                return f"2026-11-03T04:04:11.123Z kubelet[1234]: I1103 reconciler_common.go:245 operationExecutor started for volume {n}"
            case 4:
                return f"[{20113 + n / 10:.6f}] usb 1-1: new high-speed USB device number {n % 100} using xhci_hcd"
            case 5:
                return f"INFO:root:saving metrics to the tracker, run {n}, gpu mem 71.2 GiB, tokens/s 12345.6"
            case _:
                return f'2026-11-03 04:04:11,123 DEBUG urllib3.connectionpool: https://host:443 "GET /api/v1/x?id={n} HTTP/1.1" 200 123'

    yield from (f"{one(n)}\n" for n in range(lines))
    yield "[rank3] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.12 GiB.\n"


def main() -> None:
    """Writes the log, reads it, prints the figures."""
    lines = int(sys.argv[1]) if len(sys.argv) > 1 else 300_000
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mixed.log"
        with path.open("w") as out:
            out.writelines(mixed(lines))
        judge = judge_of("train_log")
        begin = time.process_time()
        found = judge([Source(path)], Context())
        seconds = time.process_time() - begin
        size = path.stat().st_size
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{lines / seconds:,.0f} lines/s, {size / seconds / 1e6:.1f} MB/s of {size / lines:.0f} bytes a line; {memory:.0f} MB; {[one.fault for one in found]}"
    )


if __name__ == "__main__":
    main()
