"""The answer for people: what broke, where, how sure, what Outrider would do, what you do next."""

import re
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.text import Text

from detectors.inspect.findings import Finding
from outrider.catalogue import FAULTS
from outrider.explain.pages import DOES, REPAIRS
from outrider.signals import SUBJECT_KEYS

_COLOURS = {"restart": "bold red", "drain": "red", "page": "yellow", "watch": "cyan", "ignore": "dim"}
#: Evidence lines shown to a person; all that are kept stand in the JSON.
_SHOWN = 4


def print_answer(findings: list[Finding], *, sources: int, kinds: list[str]) -> None:
    """Prints the findings, strongest first, to standard output."""
    console = Console(highlight=False, soft_wrap=True)
    what = f"{sources} file{'s' * (sources != 1)} ({', '.join(kinds)})"
    if not findings:
        console.print(f"[green]Nothing that needs anybody[/] in {what}.")
        return
    console.print(f"{len(findings)} incident{'s' * (len(findings) != 1)} in {what}\n")
    for one in findings:
        _print_one(console, one)


def _filled(step: str, subject: dict[str, Any]) -> str:
    """A command with the names that are known in place of NODE, GPU, PCI, NIC, MOUNT and JOB."""
    known = {key.upper(): str(subject[key]) for key in ("node", "gpu", "pci", "nic", "mount", "job") if key in subject}
    if "pci" in subject:
        known.setdefault("GPU", f"{subject['pci']}.0")  # the driver's tools take a bus address as well
    return re.sub(r"\b(?:NODE|GPU|PCI|NIC|MOUNT|JOB)\b(?!-)", lambda word: known.get(word[0], word[0]), step)


def _print_one(console: Console, one: Finding) -> None:
    colour = _COLOURS[one.response]
    sure = "certain by itself" if one.decisive else f"layers: {', '.join(one.layers)}; not proof by itself"
    healed = "  (healed within the file)" if one.state == "resolved" else ""
    title = f"[{colour}]{one.response.upper():8}[/][bold]{one.fault}[/]"
    console.print(f"{title}  {escape(FAULTS[one.fault].summary)}{healed}")
    where = ", ".join(f"{key} {one.subject[key]}" for key in SUBJECT_KEYS if key in one.subject) or "unknown"
    for label, text in (
        ("where", f"{where}  (culprit: {one.culprit})"),
        ("why", one.explanation),
        ("sure", sure),
        ("Outrider", DOES[one.response]),
        ("repair", REPAIRS[one.repair]),
    ):
        console.print(Text(f"  {label:9} {text}"))
    for number, step in enumerate(one.next_steps, 1):
        console.print(Text(f"  {'you' if number == 1 else '':9} {number}. {_filled(step, one.subject)}"))
    for line in one.evidence[:_SHOWN]:
        place = f"{line.file}:{line.line}" if line.file else f"line {line.line}"
        console.print(Text(f"  {place:>9}  {line.text[:200]}", style="dim"))
    if len(one.evidence) > _SHOWN:
        console.print(Text(f"  {'':9}  .. {len(one.evidence) - _SHOWN} more lines", style="dim"))
    console.print()
