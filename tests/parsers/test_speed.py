"""A guard against a parser that became slow; the figures themselves come from `bench/parsers.py`."""

import time
from pathlib import Path

from detectors.inspect.context import Context
from detectors.inspect.kmsg import judge
from detectors.inspect.sources import Source

ORDINARY = "[{n}.000001] perf: interrupt took too long ({n} > 2500), lowering kernel.perf_event_max_sample_rate to 79500\n"
MATTERS = "[{n}.000001] NVRM: Xid (PCI:0000:3b:00): 31, pid={n}, name=train_moe, Ch 00000012, intr 00000000. MMU Fault\n"


def test_a_large_log_is_read_at_the_speed_of_a_plain_search(tmp_path: Path) -> None:
    path = tmp_path / "large.log"
    lines = 100_000
    path.write_text("".join((MATTERS if n % 200 == 0 else ORDINARY).format(n=n) for n in range(lines)))
    started = time.process_time()
    judge([Source(path)], Context(node="n1"))
    # 300,000 to 500,000 a second are usual; a quarter of the promised 150,000 leaves room for a busy machine
    assert lines / (time.process_time() - started) > 37_500
