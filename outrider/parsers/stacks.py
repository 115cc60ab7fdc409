"""Stack dumps: py-spy's text, faulthandler's text, and kernel text, in sections `==> NODE rank R pid P state S <==`.

Source: py-spy 0.3 and 0.4 (`py-spy dump`, with and without native frames), CPython's faulthandler. A file without section
lines is one
process after another, each opened by py-spy's `Process PID:` or faulthandler's first thread.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

#: Frames kept of a thread, threads of a process, lines of a kernel section, processes: far above anything real.
FRAMES_MAX: Final = 256
THREADS_MAX: Final = 512
KERNEL_LINES_MAX: Final = 20_000
PROCESSES_MAX: Final = 200_000
LINE_CHARS_MAX: Final = 2000


class Frame(NamedTuple):
    """One frame; the innermost stands first. `file` may be a library for native frames."""

    function: str
    file: str


@dataclass(slots=True)
class Thread:
    """One thread. `flags`: py-spy's words, such as idle, active, gil, gc."""

    name: str
    flags: frozenset[str]
    frames: list[Frame] = field(default_factory=list)


@dataclass(slots=True)
class ProcessStack:
    """One process. `state`: the kernel's letter (R S D T Z ..), if the section says it; `line`: where it begins, from 1."""

    line: int
    node: str | None = None
    rank: int | None = None
    pid: int | None = None
    state: str | None = None
    threads: list[Thread] = field(default_factory=list)
    text: str = ""

    @property
    def main(self) -> Thread | None:
        """The main thread; without one so called, the thread whose id is the process's, else the last (faulthandler puts it
        there)."""
        for one in self.threads:
            if one.name in ("MainThread", str(self.pid)):
                return one
        return self.threads[-1] if self.threads else None


@dataclass(slots=True)
class KernelSection:
    """Kernel text of one node, with line numbers from 1."""

    node: str | None
    lines: list[tuple[int, str]] = field(default_factory=list)


@dataclass(slots=True)
class StackDump:
    """All that a file of stack dumps holds. `unread`: lines that were of no known form."""

    processes: list[ProcessStack] = field(default_factory=list)
    kernels: list[KernelSection] = field(default_factory=list)
    unread: int = 0


_SECTION: Final = re.compile(
    r"==> (?P<node>\S{1,253}) (?:(?P<kernel>kernel)|rank (?P<rank>\d{1,7}|\?)(?: pid (?P<pid>\d{1,9}|\?))?(?: state "
    r"(?P<state>\w\S{0,3}|\?))?)[^<]{0,60}<=="
)
_PROCESS: Final = re.compile(r"Process (?P<pid>\d{1,9}): (?P<command>.{0,400})")
_THREAD: Final = re.compile(
    r'Thread (?:0x)?(?P<id>[0-9a-fA-F]{1,18})(?: \((?P<flags>[\w+ ]{1,40})\))?(?:: "(?P<name>[^"]{0,120})")?\s*$'
)
_FAULT_THREAD: Final = re.compile(
    r"(?P<current>Current thread|Thread) 0x(?P<id>[0-9a-fA-F]{1,18})(?: \[(?P<name>[^\]]{0,60})\])? \(most recent call first\):"
)
_FRAME: Final = re.compile(r"\s{2,8}(?P<function>\S.{0,300}?) \((?P<file>[^()]{1,400}?)(?::\d{1,7})?\)\s*$")
_FAULT_FRAME: Final = re.compile(r'\s{2}File "(?P<file>[^"]{1,400})", line (?:\d{1,7}|\?\?\?) in (?P<function>.{1,200})')


def parse_stacks(lines: Iterable[str]) -> StackDump:
    """Reads a stack dump, line by line."""
    dump = StackDump()
    process: ProcessStack | None = None
    kernel: KernelSection | None = None
    for number, whole in enumerate(lines, 1):
        line = whole[:LINE_CHARS_MAX]
        if match := _SECTION.match(line):
            process = kernel = None
            if match["kernel"]:
                kernel = KernelSection(match["node"])
                dump.kernels.append(kernel)
            elif len(dump.processes) < PROCESSES_MAX:
                process = ProcessStack(
                    line=number,
                    node=match["node"],
                    rank=_number(match["rank"]),
                    pid=_number(match["pid"]),
                    state=_state(match["state"]),
                    text=line,
                )
                dump.processes.append(process)
        elif kernel is not None:
            if len(kernel.lines) < KERNEL_LINES_MAX and line.strip():
                kernel.lines.append((number, line))
        else:
            process = _process_line(dump, process, line, number)
    return dump


def _process_line(dump: StackDump, process: ProcessStack | None, line: str, number: int) -> ProcessStack | None:
    """Takes one line of a process's text; a line may open a process of its own where no section did."""
    if match := _PROCESS.match(line):
        if process is None or process.threads or (process.pid not in (None, int(match["pid"]))):
            process = ProcessStack(line=number, pid=int(match["pid"]), text=line)
            dump.processes.append(process)
        else:
            process.pid = int(match["pid"])
        return process
    if match := _FAULT_THREAD.match(line) or _THREAD.match(line):
        if process is None:
            process = ProcessStack(line=number, text=line)
            dump.processes.append(process)
        if len(process.threads) < THREADS_MAX:
            groups = match.groupdict()
            flags = frozenset(re.split(r"[+ ]", groups.get("flags") or "")) - {""}
            name = groups.get("name") or (groups["id"] if "current" not in groups else "")
            process.threads.append(Thread(name, flags))
        return process
    if process is not None and process.threads and (match := _FAULT_FRAME.match(line) or _FRAME.match(line)):
        frames = process.threads[-1].frames
        if len(frames) < FRAMES_MAX:
            frames.append(Frame(match["function"].strip(), match["file"]))
    elif line.strip() and not line.startswith("Python v") and process is None:
        dump.unread += 1
    return process


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None


def _state(text: str | None) -> str | None:
    return text[0].upper() if text and text != "?" else None
