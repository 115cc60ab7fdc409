"""`outrider agent --once`: every collector reads once, and a person sees what it found, or why it found nothing."""

import json
import shutil
import tempfile
from collections import Counter
from typing import Any

import msgspec

from collectors.agent.loop import Loop
from collectors.agent.state import boot_id
from collectors.frame.found import Found
from collectors.frame.health import CollectorState
from collectors.frame.pipe import Read
from collectors.frame.supervisor import Supervisor
from collectors.frame.types import Place
from outrider.signals import Signal

#: A collector that has not answered by then is shown as stuck: longer than every deadline.
LIMIT_SECONDS = 12.0


def look_once(found: Found, nursery: Any, place: Place) -> list[dict[str, Any]]:
    """Runs every collector once. Returns one row each: collector, state, reason, seconds, signals, samples."""
    signals: list[Signal] = []
    failures: list[BaseException] = []
    loop = Loop(failures.append)
    # A child that is just ending may still write there: what it leaves is swept once more, and is no error.
    with tempfile.TemporaryDirectory(prefix="outrider-once-", ignore_cleanup_errors=True) as folder:
        # A cursor of its own: the agent that may run here is not disturbed.
        place = msgspec.structs.replace(place, state_dir=folder, boot=boot_id())
        supervisor = Supervisor(loop, nursery, found, place, signals.append)
        waiting = {name for name, state in supervisor.states.items() if state.supported is None}

        def heard(read: Read) -> None:
            waiting.discard(read.collector)
            if not waiting:
                loop.stop()

        supervisor.on_read = heard
        supervisor.begin()
        loop.call_later(LIMIT_SECONDS if waiting else 0.0, loop.stop)
        loop.run()
        supervisor.close()
        loop.close()
    shutil.rmtree(folder, ignore_errors=True)
    rows = [
        _row(name, state, name in waiting, [one for one in signals if one.source == name])
        for name, state in supervisor.states.items()
    ]
    rows += [
        {"collector": name, "state": "off", "reason": "switched off", "seconds": None, "signals": [], "samples": {}}
        for name in found.off
    ]
    return sorted(rows, key=lambda row: str(row["collector"]))


def _row(name: str, state: CollectorState, stuck: bool, signals: list[Signal]) -> dict[str, Any]:
    if stuck:
        word, reason = "stuck", state.reason or f"no answer within {LIMIT_SECONDS:g} s"
    elif state.supported is False:
        word, reason = "absent", state.reason
    elif state.success is False:
        word, reason = "broken", state.reason
    else:
        word, reason = "reads", state.reason
    samples = {sample.name + _labels(sample.labels): sample.value for sample in state.samples}
    return {
        "collector": name,
        "state": word,
        "reason": reason,
        "seconds": None if stuck else round(state.seconds, 4),
        "signals": [msgspec.to_builtins(signal) for signal in signals],
        "samples": samples,
    }


def _labels(labels: dict[str, str]) -> str:
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}" if labels else ""


def print_json(rows: list[dict[str, Any]]) -> None:
    """One JSON object a collector."""
    for row in rows:
        print(json.dumps(row))


def print_table(rows: list[dict[str, Any]]) -> None:
    """A table for people."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    colours = {"reads": "green", "absent": "dim", "off": "dim", "broken": "red", "stuck": "bold red"}
    table = Table(title="What the collectors of this node see")
    for heading in ("collector", "state", "ms", "sees"):
        table.add_column(heading, justify="right" if heading == "ms" else "left")
    for row in rows:
        time = "" if row["seconds"] is None else f"{1000 * row['seconds']:.1f}"
        table.add_row(row["collector"], f"[{colours[row['state']]}]{row['state']}[/]", time, escape(_sees(row)))
    Console().print(table)


def _sees(row: dict[str, Any]) -> str:
    if row["reason"]:
        return str(row["reason"])
    kinds = Counter(signal["kind"] for signal in row["signals"])
    words = [f"{len(row['samples'])} series"] if row["samples"] else []
    words += [f"{count} {kind}" for kind, count in sorted(kinds.items())]
    return ", ".join(words) or "nothing to tell"
