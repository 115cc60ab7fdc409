"""Explanations as plain data and as text; the runbook page of a fault class as Markdown. All words come from the catalogue."""

from typing import Any, Final

from outrider.catalogue.codes import Code, CodeBook
from outrider.catalogue.faults import FAULTS, FaultClass, fault
from outrider.catalogue.library import LibraryError

#: What each response does to the job and the part (design, "Response").
DOES: Final[dict[str, str]] = {
    "ignore": "counts it, nothing else",
    "watch": "records and shows it",
    "page": "tells a person; touches no job",
    "drain": "gives the part no new work and lets the job leave at its next boundary",
    "restart": "saves what is sound, takes the culprit out if it is a part of a machine, restarts the job on a spare",
}
REPAIRS: Final[dict[str, str]] = {
    "none": "nothing to repair",
    "reset_gpu": "reset the GPU",
    "reboot_node": "boot the node",
    "replace_part": "replace the part",
    "check_link": "check cable, module, slot and port",
    "fix_app": "mend the program",
    "fix_data": "mend the data or its loader",
    "fix_storage": "mend the storage",
    "investigate": "find out more first",
}
_ROLES: Final[dict[str, str]] = {
    "root": "a cause",
    "app": "a program's own error, unless one GPU repeats it over several programs",
    "secondary": "follows something else: look for the cause",
    "verdict": "the driver's verdict on another error",
    "severity": "the severity word on the line decides",
    "info": "by itself no fault",
    "injected": "a test",
}
_BLAMES: Final[dict[str, str]] = {
    "self": "the rank or node that prints it",
    "peer": "the peer that it names",
    "path": "either end, or what is between",
    "none": "nobody: a consequence",
    "code": "the program or its settings",
}
Explanation = dict[str, Any]


def explain_code(kind: str, number: int, codes: CodeBook) -> Explanation:
    """What an Xid or SXid means; `kind` is `xid` or `sxid`."""
    code: Code = codes.xid(number) if kind == "xid" else codes.sxid(number)
    entry = FAULTS[code.fault]
    shown: Explanation = {
        "what": f"{kind} {code.code}",
        "name": code.name,
        "meaning": code.meaning,
        "role": _ROLES[code.role],
        "scope": code.scope,
        "fault": code.fault,
        "decisive": code.decisive,
        "response": code.response,
        "repair": code.repair,
        "vendor_action": code.action,
        "rules": list(code.context),
        "severity": dict(code.severity),
        "guide": code.guide,
        "overridden": code.overridden,
        "first_commands": list(entry.first_commands),
        "source": code.source,
    }
    return {key: value for key, value in shown.items() if value not in ("", [], {})}


def explain_fault(key: str) -> Explanation:
    """What a fault class means.

    Raises:
        InputError: there is no such class.
    """
    entry = fault(key)
    shown: Explanation = {
        "what": entry.key,
        "name": entry.summary,
        "meaning": entry.meaning,
        "layer": entry.layer,
        "culprit": entry.culprit,
        "fault": entry.key,
        "decisive": entry.decisive,
        "response": entry.response,
        "repair": entry.repair,
        "severity": entry.severity,
        "witnesses": dict(entry.witnesses),
        "rules": list(entry.advice),
        "first_commands": list(entry.first_commands),
        "false_alarms": list(entry.false_alarms),
        "undo": entry.undo,
        "source": entry.source,
    }
    return {name: value for name, value in shown.items() if value not in ("", [], {})}


def explain_library(entry: LibraryError) -> Explanation:
    """What NCCL's words mean."""
    return {
        "what": f"nccl {entry.name}",
        "name": entry.name,
        "meaning": entry.meaning,
        "look_at": _BLAMES[entry.blames],
        "fault": entry.fault,
        "decisive": entry.decisive,
        "response": entry.response,
        "repair": entry.repair,
        "rules": list(entry.advice),
        "first_commands": list(FAULTS[entry.fault].first_commands),
        "source": entry.source,
    }


def as_text(one: Explanation) -> list[str]:
    """An explanation as lines for a terminal."""
    title = one["what"] if one["what"].endswith(one["name"]) else f"{one['what']}  {one['name']}"
    lines = [title, f"  means      {one['meaning']}"]
    for key, label in (("role", "is"), ("scope", "about"), ("look_at", "look at"), ("overridden", "site says")):
        if one.get(key):
            lines.append(f"  {label:10} {one[key]}")
    if one["what"] != one["fault"]:
        lines.append(f"  {'fault':10} {one['fault']}")
    proof = "decisive: the line needs no second layer" if one["decisive"] else "not decisive: a second layer confirms it"
    lines.append(f"  {'proof':10} {proof}")
    lines.append(f"  {'Outrider':10} {one['response']}: {DOES[one['response']]}")
    lines.append(f"  {'repair':10} {one['repair']}: {REPAIRS[one['repair']]}")
    if one.get("vendor_action"):
        lines.append(f"  {'vendor':10} {one['vendor_action']}")
    if isinstance(one.get("severity"), dict):
        lines.append(f"  {'severity':10} " + ", ".join(f"{name}: {word}" for name, word in one["severity"].items()))
    if one.get("witnesses"):
        told = (f"{kind} ({strength})" for kind, strength in one["witnesses"].items())
        lines.append(f"  {'witnesses':10} {', '.join(told)}")
    for key, label in (("rules", "know"), ("first_commands", "first"), ("false_alarms", "not when")):
        for number, text in enumerate(one.get(key, ())):
            lines.append(f"  {label if number == 0 else '':10} {'$ ' if key == 'first_commands' else ''}{text}")
    lines.append(f"  {'source':10} {one['source']}")
    return lines


def runbook(entry: FaultClass, codes: CodeBook) -> str:
    """The page `docs/runbooks/<fault>.md`."""
    layer = "alone enough" if entry.decisive else "a second, independent layer must confirm it"
    witnesses = "\n".join(f"- `{kind}`: {strength}" for kind, strength in entry.witnesses.items())
    commands = "\n".join(entry.first_commands)
    told = _codes_of(entry.key, codes)
    return f"""# {entry.key}

{entry.summary} Severity: {entry.severity}. Culprit: {entry.culprit}.

<!-- Written by `outrider runbooks DIR` from outrider/catalogue/faults.toml: change it there. -->

## What it means
{entry.meaning}

## What Outrider saw
Evidence of the {entry.layer} layer; {layer}. Signals that witness it, and how strongly:

{witnesses}
{told}
The incident's evidence lists the lines and counters themselves: `outrider incidents INCIDENT`.

## What Outrider did
Response `{entry.response}`: {DOES[entry.response]}. In the modes `observe` and `advise` it only says so.
Repair needed afterwards: `{entry.repair}` ({REPAIRS[entry.repair]}).

## First commands
```
{commands}
```

## What you do
{_list(entry.advice)}

## A false alarm?
{_list(entry.false_alarms)}

## Undo
{entry.undo}

## Source
{entry.source}
"""


def _list(texts: tuple[str, ...]) -> str:
    return "\n".join(f"- {text}" for text in texts)


def _codes_of(key: str, codes: CodeBook) -> str:
    """The Xids that are causes of this class, as one paragraph."""
    numbers = [str(code.code) for code in codes.xids() if code.fault == key and code.role in ("root", "app")]
    return f"\nXids of this class that are causes: {', '.join(numbers)} (`outrider explain xid N`).\n" if numbers else ""
