"""Kernel lines between the ranks' lines: judged as a kernel log, node by node."""

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from detectors.inspect.context import Context
from detectors.inspect.findings import Finding
from detectors.inspect.kinds import judge_of

if TYPE_CHECKING:
    from detectors.inspect.train_log.story import Story


class KernelLines:
    """Lines in memory that a judge reads as a source. `numbers` maps their place back to the log they come from."""

    def __init__(self, lines: list[tuple[int, str | None, str]]) -> None:
        self.name, self.file, self.path, self.size = "kernel lines", None, None, 0
        self._lines = lines
        self.head = self._text()[: 1 << 16]

    def _text(self) -> bytes:
        return "".join(f"{text}\n" for _, _, text in self._lines).encode()

    def on_progress(self, _progress: object) -> None:
        """Nothing to tell: the lines were read already."""

    def blocks(self) -> list[bytes]:
        return [self._text()]

    def lines(self) -> list[str]:
        return [text for _, _, text in self._lines]

    def moved(self, one: Finding) -> Finding:
        """The finding with the evidence's true line numbers."""
        evidence = []
        for line in one.evidence:
            number, file, _ = self._lines[line.line - 1] if 0 < line.line <= len(self._lines) else (line.line, None, "")
            evidence.append(replace(line, line=number, file=file))
        return replace(one, evidence=tuple(evidence))


def kernel_findings(story: "Story", context: Context) -> list[Finding]:
    """What the kernel lines say, judged for each node apart."""
    nodes: dict[str | None, list[tuple[int, str | None, str]]] = defaultdict(list)
    for line, file, node, text in story.kernel:
        nodes[node].append((line, file, text))
    found = []
    for node, lines in nodes.items():
        source = KernelLines(lines)
        found += [source.moved(one) for one in judge_of("kmsg")([source], replace(context, node=node or context.node))]  # type: ignore[list-item]
    return [one for one in found if one.height >= 1]
