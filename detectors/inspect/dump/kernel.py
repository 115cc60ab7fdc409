"""What the kernel section of a stack dump says: tasks that are blocked, and in which part of the kernel."""

import re
from dataclasses import dataclass, field, replace
from typing import Any, Final

from detectors.inspect.context import Context
from detectors.inspect.findings import EvidenceLine, Finding
from detectors.inspect.kinds import judge_of
from detectors.inspect.train_log.kernel import KernelLines
from outrider.parsers.stacks import KernelSection

_HUNG: Final = re.compile(r"task (?P<name>\S{1,64}?):(?P<pid>\d{1,9}) blocked for more than (?P<seconds>\d{1,9}) seconds")
_STORAGE: Final = re.compile(
    r"\b(?:nfs\d?_\w+|rpc_\w+|\w*lustre\w*|ll_\w+|osc_\w+|cl_\w+|ptlrpc_\w+|ceph_\w+|gpfs\w*|mmfs\w*|beegfs\w*|wekafs\w*|"
    r"fuse_\w+|ext4_\w+|xfs_\w+|jbd2_\w+|"
    r"btrfs_\w+|nvme_\w+|blk_\w+|io_schedule|folio_wait\w*|wait_on_page\w*|vfs_fsync\w*|writeback\w*)\b"
    r"|\[(?:nfs\w*|sunrpc|lustre|lov|osc|ceph|fuse|xfs|ext4|nvme\w*|mmfslinux)\]|not responding, (?:still trying|timed out)|"
    r"LustreError|I/O error"
)
_DRIVER: Final = re.compile(
    r"\[nvidia\w*\]|\b(?:_?nv\d{3,8}rm|nvidia_\w+|os_acquire_\w+|uvm_\w+|rm_ioctl|nvkms_\w+|_nv0\d+rm)\b|NVRM:"
)
_SERVER: Final = re.compile(r"(?:nfs: )?server (?P<server>[\w.:-]{1,120}) not responding")
_ANSWERS: Final = re.compile(r"server \S{1,120} OK\b|Connection restored to ")
_LINES: Final = 8


@dataclass(slots=True)
class KernelWords:
    """What one node's kernel text says. `place`: mount or server, where it names one; `pids`: blocked tasks."""

    section: KernelSection
    storage: bool = False
    driver: bool = False
    hung: bool = False
    answered: bool = False  # the file server answers again
    pids: frozenset[int] = frozenset()
    place: dict[str, Any] = field(default_factory=dict)
    lines: list[EvidenceLine] = field(default_factory=list)

    def evidence(self) -> list[EvidenceLine]:
        return self.lines[:_LINES]

    def hardware(self, context: Context) -> list[Finding]:
        """Xids and the like in the kernel text, judged as a kernel log; blocked tasks alone are judged with the stacks."""
        if not any(
            "NVRM: Xid" in text or "Machine check" in text or "fallen off" in text or "mlx5_core" in text
            for _, text in self.section.lines
        ):
            return []
        source = KernelLines([(number, None, text) for number, text in self.section.lines])
        found = judge_of("kmsg")([source], replace(context, node=self.section.node or context.node))  # type: ignore[list-item]
        return [
            source.moved(one)
            for one in found
            if one.height >= 2 and one.culprit in ("gpu", "node", "link", "nic") and not one.fault.startswith(("storage", "job"))
        ]


def kernel_words(section: KernelSection) -> KernelWords:
    """Reads one kernel section."""
    words = KernelWords(section)
    pids = set()
    for number, text in section.lines:
        hit = False
        if match := _HUNG.search(text):
            words.hung = hit = True
            pids.add(int(match["pid"]))
        if _STORAGE.search(text):
            words.storage = hit = True
        if _DRIVER.search(text):
            words.driver = hit = True
        if match := _SERVER.search(text):
            words.place, words.answered = {"server": match["server"]}, False
        elif _ANSWERS.search(text):
            words.answered = True
        if hit:
            words.lines.append(EvidenceLine(line=number, text=text.strip()))
    words.pids = frozenset(pids)
    return words
