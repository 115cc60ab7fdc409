"""Speed and memory of `outrider inspect` on a large mixed log, one core.

    python bench/parsers.py [--lines 1000000] [--keep FILE]

Writes a log of kernel, journal and training lines (about 1 in 200 matters), reads it with the judge of kernel logs and prints lines
a second, MB a second and the peak resident memory of the process. `--lines 9000000` makes about 1 GB.
"""

import argparse
import random
import resource
import sys
import tempfile
import time
from pathlib import Path

from detectors.inspect.context import Context
from detectors.inspect.kmsg import judge
from detectors.inspect.sources import Source

ORDINARY = (
    "[{t:12.6f}] perf: interrupt took too long (2511 > 2500), lowering kernel.perf_event_max_sample_rate to 79500",
    '[{t:12.6f}] audit: type=1400 audit(1773299402.1:{n}): apparmor="STATUS" operation="profile_load" name="docker-default"',
    "[{t:12.6f}] IPv6: ADDRCONF(NETDEV_CHANGE): veth{n}: link becomes ready",
    "Mar 12 07:10:02 gn-012 systemd[1]: Started Session {n} of User root.",
    "Mar 12 07:10:02 gn-012 sshd[{n}]: Accepted publickey for root from 10.0.0.{m} port {n} ssh2",
    "Mar 12 07:10:02 gn-012 kernel: [{t:12.6f}] docker0: port 1(veth{n}) entered forwarding state",
    "[rank{m}] 2026-03-12 07:10:02 iteration {n}/ 500000 | lm loss: 1.874410E+00 | grad norm: 0.402 | step time 6.1 s",
    "2026-03-12T07:10:02.123456+00:00 gn-012 kubelet[1200]: I0312 07:10:02.1 1200 status_manager.go:{m}] Pod status updated",
    "[{t:12.6f}] usb 1-{m}: new high-speed USB device number {m} using xhci_hcd",
)
MATTERS = (
    "[{t:12.6f}] NVRM: Xid (PCI:0000:{b:02x}:00): 31, pid={n}, name=train_moe, Ch 00000012, MMU Fault: ENGINE GRAPHICS",
    "[{t:12.6f}] mlx5_core 0000:{b:02x}:00.0: mlx5_cmd_out_err:835:(pid {n}): ACCESS_REG(0x805) failed, status bad operation(0x2)",
    "[{t:12.6f}] nvidia-nvswitch0: SXid (PCI:0000:c5:00.0): 12028, Non-fatal, Link {m} egress non-posted PRIV error (First)",
    "[{t:12.6f}] EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0 (channel:0 slot:0)",
)


def write_log(path: Path, lines: int, seed: int = 7) -> None:
    """A log of so many lines; the same for the same seed."""
    chance = random.Random(seed)
    with path.open("w") as out:
        for n in range(lines):
            shape = chance.choice(MATTERS if chance.random() < 0.005 else ORDINARY)
            out.write(shape.format(t=1000 + n / 100, n=n, m=n % 200, b=n % 8 * 16 + 11) + "\n")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--lines", type=int, default=1_000_000)
    options.add_argument("--keep", type=Path, help="write the log here and leave it, or read it if it is there")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = chosen.keep or Path(folder) / "mixed.log"
        if not path.exists():
            write_log(path, chosen.lines)
        size = path.stat().st_size
        wall, core = time.perf_counter(), time.process_time()
        found = judge([Source(path)], Context(node="gn-012"))
        wall, core = time.perf_counter() - wall, time.process_time() - core
    lines = chosen.lines
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{lines} lines, {size / 1e6:.0f} MB: {core:.2f} s of one core ({wall:.2f} s wall)", file=sys.stderr)
    print(f"{lines / core:,.0f} lines/s  {size / core / 1e6:.0f} MB/s  peak {memory:.0f} MiB  {len(found)} findings")


if __name__ == "__main__":
    main()
