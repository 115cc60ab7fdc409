"""Whatever stands in a file, the parsers neither crash nor take long: random text, and real lines cut, doubled and mixed.

A longer run by hand: `python bench/fuzz_parsers.py` (atheris, coverage-guided).
"""
# ruff: noqa: E501 (raw lines keep their length)

import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from detectors.inspect import kmsg, metrics
from detectors.inspect.context import Context
from detectors.inspect.sources import Source
from outrider.errors import InputError
from outrider.parsers.exposition import BadSampleError, ExpositionReader
from outrider.parsers.kernel_log import LITERALS, KernelLog, lines_that_matter
from outrider.parsers.kernel_log_prefix import split_record
from outrider.parsers.sxid import parse_sxid
from outrider.parsers.xid import parse_xid

SEEDS = [
    "[  100.1] NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    "3,1227,437812449932,-;NVRM: Xid (PCI:0000:01:00 GPU-I:05 GPU-CI:02): 94, pid=7, name=a, b, Contained: SM (0x1). RST: No, D-RST: No",
    "Mar 12 07:10:02 n1 kernel: [1.0] nvidia-nvswitch3: SXid (PCI:0000:c5:00.0): 20034, Fatal, Link 46 LTSSM Fault Up (First)",
    "[1.0] NVRM: Xid (PCI:0000:b9:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 09 (0x025525c6 0x00000000 0x0 0x0 0x0 0x0)",
    "[1.0] NVRM: Xid (PCI:0000:5c:00): 74, NVLink: fatal error detected on link 11(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",
    "[1.0] mlx5_core 0000:5d:00.0: 63.008 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x8 link at x (capable of 252.0 Gb/s)",
    "[1.0] EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0 (channel:0)",
    "[1.0] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),task=python3,pid=4411,uid=1000",
    "[1.0] pcieport 0000:3a:00.0: AER: Uncorrectable (Fatal) error message received from 0000:3b:00.0",
    '{"_TRANSPORT":"kernel","MESSAGE":"NVRM: Xid (PCI:0000:3b:00): 79, x","__REALTIME_TIMESTAMP":"1"}',
    'DCGM_FI_DEV_XID_ERRORS{gpu="5",UUID="GPU-1",Hostname="n1"} 79',
    "# t=60",
]
seeds = st.sampled_from(SEEDS)
pieces = st.one_of(
    seeds, st.sampled_from(LITERALS), st.text(max_size=40), st.sampled_from(["(", "0x", ", ", "{", '"', "[[", " " * 50])
)
lines = st.one_of(
    st.lists(pieces, max_size=12).map("".join),
    st.tuples(seeds, st.integers(0, 200), st.integers(0, 200), st.text(max_size=10)).map(
        lambda s: s[0][: s[1]] + s[3] + s[0][s[2] :]
    ),
    st.tuples(seeds, st.integers(1, 3000)).map(lambda s: s[0] + s[0][-1:] * s[1]),
)
quick = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@quick
@given(lines)
def test_no_line_breaks_a_parser(line: str) -> None:
    log = KernelLog(bare=True, user_records=True)
    for _ in range(2):
        log.feed(line)
    parse_xid(line)
    parse_sxid(line)
    split_record(line)
    with suppress(BadSampleError):
        ExpositionReader().feed(line)


@quick
@given(st.lists(lines, max_size=8))
def test_no_file_breaks_a_judge(tmp_path: Path, some: list[str]) -> None:
    path = tmp_path / "file"
    path.write_text("\n".join(some), encoding="utf-8", errors="replace")
    context = Context(node="n1")
    for one in kmsg.judge([Source(path)], context):
        one.to_json()
    with suppress(InputError):
        for one in metrics.judge([Source(path)], context):
            one.to_json()


@quick
@given(st.lists(lines, max_size=8), st.integers(1, 5))
def test_the_lines_that_matter_are_found_where_they_stand(some: list[str], first: int) -> None:
    block = "\n".join(line.replace("\n", " ") for line in some)
    wanted = [(n, line) for n, line in enumerate(block.split("\n"), first) if any(literal in line for literal in LITERALS)]
    assert list(lines_that_matter(block, first)) == wanted


#: Strings that make a careless pattern try every way of cutting them.
EVIL = [
    "[" + " " * 20_000,
    "[1.0] " + "NVRM: Xid (PCI:" + "0" * 20_000,
    "[1.0] NVRM: Xid (PCI:0000:3b:00): 45, pid=1, name=" + ", Ch" * 5_000,
    "[1.0] NVRM: Xid (PCI:0000:3b:00): 74, NVLink: link 1(" + "0x0, " * 5_000,
    "[1.0] NVRM: Xid (PCI:0000:b9:00): 149, " + "NETIR_LINK_EVT " * 2_000,
    "[1.0] EDAC MC0: 1 CE " + "on " * 10_000,
    "[1.0] oom-kill:constraint=X" + ",task=" * 5_000,
    "[1.0] pcieport " + "0000:3a:00.0: AER: " * 2_000,
    "[1.0] mlx5_core 0000:5d:00.0: " + "limited by x8 link at " * 2_000,
    "[1.0] ceph: " + "mds0 " * 10_000,
    "[1.0] scratch-OST0003" + "-OST0003" * 5_000 + " Lustre: Connection to",
    "[1.0] XFS (" + "(" * 10_000,
    "a" * 50_000 + ": [1.0]",
    "a:" * 20_000,
    "{" * 20_000,
    "\\x4" * 10_000,
    'm{a="' + "\\" * 20_000,
    "m{" + 'a="b",' * 5_000,
]  # fmt: skip


@pytest.mark.parametrize("line", EVIL, ids=range(len(EVIL)))
def test_no_line_takes_unbounded_time(line: str) -> None:
    started = time.process_time()
    KernelLog(bare=True).feed(line)
    parse_xid(line)
    parse_sxid(line)
    with suppress(BadSampleError):
        ExpositionReader().feed(line)
    # milliseconds are usual; a catastrophic pattern takes minutes, a busy machine a factor of some
    assert time.process_time() - started < 1.0
