"""The kinds of input: who judges each, and how a file's kind is guessed from its first 64 KiB.

A judge is `judge(sources, context) -> list[Finding]`: pure but for reading its sources. Its module is imported when its
kind is met, not before.
"""

import re
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Final

from detectors.inspect.context import Context
from detectors.inspect.findings import Finding
from detectors.inspect.sources import Source
from outrider.errors import InputError
from outrider.parsers.kernel_log_prefix import hides_its_writer, is_kernel_log

Judge = Callable[[Sequence[Source], Context], list[Finding]]

#: kind -> "module:function" of its judge.
KINDS: Final[dict[str, str]] = {
    "kmsg": "detectors.inspect.kmsg:judge",
    "train_log": "detectors.inspect.train_log:judge",
    "metrics": "detectors.inspect.metrics:judge",
    "dump": "detectors.inspect.dump:judge",
    "trace": "detectors.inspect.trace:judge",
}


def judge_of(kind: str) -> Judge:
    """The judge of a kind, imported now."""
    module, _, name = KINDS[kind].partition(":")
    judge: Judge = getattr(import_module(module), name)
    return judge


#: Lines of the kernel's drivers without any prefix (dmesg --notime), or within another's line.
_DRIVERS: Final = re.compile(r"^NVRM: |nvidia-nvswitch\d+: SXid")
#: Journal or syslog text of any program: read as a kernel log, in which only the kernel's own lines are believed.
_JOURNAL: Final = re.compile(r"^(?:\w{3} [ \d]\d [\d:.]+|\d{4}-\d\d-\d\d[T ]\S+) \S+ [\w./@-]{1,64}(?:\[\d+\])?: ", re.MULTILINE)
_METRICS: Final = re.compile(
    r"^# (?:t=[\d.e+]+|HELP \w+ |TYPE \w+ (?:gauge|counter|histogram|summary|untyped))"
    r"|^[a-zA-Z_:][\w:]*(?:\{[^\n]*\})? -?[\d.eE+]+(?: \d+)?$",
    re.MULTILINE,
)
_DUMP: Final = re.compile(
    r"^==> \S+ (?:rank \S+ pid|kernel)|^Process \d+: |^Thread (?:0x)?[0-9a-f]+ |^Current thread 0x"
    r"|\"pg_status\"|\"pg_config\""
    r"|^Communicators\.\.\. \(|\"communicators_count\"",
    re.MULTILINE,
)
_TRACE: Final = re.compile(r'^\s*\{"kind": ?"fleet"|"t": ?[\d.]+.{0,40}"kind": ?"\w+"')
#: What only a training job's log has; without it the guess is a weak one.
_SURELY_TRAIN: Final = re.compile(
    r"\[rank ?\d+\]|NCCL (?:WARN|INFO)|ProcessGroupNCCL|torch|iteration +\d+|Traceback|srun:|slurmstepd"
)
_TRAIN: Final = re.compile(
    r"\[rank ?\d+\]|\brank[ =:]?\d+\b|NCCL (?:WARN|INFO)|ProcessGroupNCCL|torch|iteration +\d+|\bloss\b|slurm|srun:"
    r"|Traceback|\bepoch\b|\bstep\b|RuntimeError|CUDA|gloo|kubelet|Error|WARN|INFO",
    re.IGNORECASE,
)


def guess_kind(source: Source) -> str | None:
    """The kind of a file by its content, or None: it is none of those that Outrider reads."""
    head = source.head
    if head[:1] == b"\x80" and head[1:2] in b"\x02\x03\x04\x05":
        return "dump"
    text = head.decode("utf-8", "replace")
    if _TRACE.search(text[:4096]):
        return "trace"
    if _DUMP.search(text):
        return "dump"
    lines = text.count("\n") + 1
    metrics, kernel = len(_METRICS.findall(text)), sum(map(_is_kernels, text.split("\n")))
    if metrics * 2 > lines:
        return "metrics"
    if kernel * 2 > lines:
        return "kmsg"
    if _TRAIN.search(text):
        return "train_log"
    if kernel or len(_JOURNAL.findall(text)) * 2 >= lines:
        return "kmsg"
    return "metrics" if metrics else None


def _is_kernels(line: str) -> bool:
    return is_kernel_log(line) or _DRIVERS.search(line) is not None


def doubt(source: Source, kind: str, *, guessed: bool) -> str | None:
    """What a person should know before believing the answer about a source; None: nothing."""
    text = source.head.decode("utf-8", "replace")
    if guessed and kind == "train_log" and not _SURELY_TRAIN.search(text):
        return f"{source.name}: taken for a training log, by few signs; if it is not, say --kind ({', '.join(KINDS)})"
    if kind == "kmsg" and any(map(hides_its_writer, text.split("\n"))):
        return (
            f"{source.name}: its lines do not say who wrote them, and a program can write such lines by /dev/kmsg;"
            " `dmesg -x` and `journalctl -k -o json` do say"
        )
    return None


#: Control characters that no text has; a log that a crash cut short may hold a run of NUL, so a share decides.
_CONTROL: Final = bytes(set(range(32)) - {7, 8, 9, 10, 12, 13, 27})


def check_readable(source: Source, kind: str | None) -> None:
    """Refuses what cannot be text of any kind.

    Raises:
        InputError: the file is empty, binary, or text in another encoding than UTF-8 or ASCII.
    """
    head = source.head
    if not head.strip():
        raise InputError("is empty", file=source.name)
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise InputError("is UTF-16 text: convert it to UTF-8 first", file=source.name)
    if head[:1] == b"\x80" and kind in (None, "dump"):
        return  # a pickle
    strange = len(head) - len(head.translate(None, _CONTROL)) + head.decode("utf-8", "replace").count("\ufffd")
    if strange > len(head) / 10:
        raise InputError("is binary data, or text that is not UTF-8", file=source.name)
