"""Two reports: what Outrider would have done while it only observed, and one incident whole for a post-mortem."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from alerts.people import known_incident, listed, with_ledger
from alerts.redact import Redactor
from alerts.story import place_of, tell
from detectors.witness.ledger import Ledger
from detectors.witness.tables import plain
from detectors.witness.translate import TYPES, webhook_body
from outrider.config.alerts import AlertsConfig
from outrider.config.site import SiteSection, read_config


async def read_report(ledger: Ledger, limit: int) -> dict[str, Any]:
    """Every action that was held back, with how its incident ended.

    `false_alarms` and `right` (an incident that a person acknowledged or that ended without being taken back) tell whether the
    step to `act` is earned; an open incident counts for neither.
    """
    lines: list[dict[str, Any]] = []
    counts: Counter[str] = Counter()
    for picture in await ledger.incidents(limit):
        whole = await ledger.incident(str(picture.get("incident"))) or picture
        refused: dict[str, dict[str, Any]] = {}
        for line in whole.get("history") or ():
            if line.get("event") == "refused":  # held back again, for another reason or after a person's word, it is the same still
                refused.setdefault(json.dumps([line.get("action"), line.get("target")], sort_keys=True), line)
        if "confirmed" not in (whole.get("times") or {}):
            continue
        ending = _ending(whole)
        counts["confirmed"] += 1
        counts[ending] += 1
        for line in refused.values():
            counts[f"would {line.get('action')}"] += 1
            lines.append(
                {
                    "incident": whole["incident"], "wall": line.get("wall"), "fault": whole.get("fault"),
                    "subject": whole.get("subject"), "action": line.get("action"), "target": line.get("target"),
                    "held_back_by": line.get("refused"), "ended": ending, "would_send": _would_send(line, whole),
                }
            )  # fmt: skip
    return {"counts": dict(sorted(counts.items())), "would_have": lines}


def _would_send(line: dict[str, Any], picture: dict[str, Any]) -> dict[str, Any] | None:
    """The very body that would have left; None for an action without one."""
    kinds: dict[str, str] = {str(name): kind for name, kind in TYPES.items()}
    kind = kinds.get(str(line.get("action")))
    if kind is None:
        return None
    text = webhook_body(kind, line.get("target") or {}, picture, 0.0, fence=int(line.get("fence") or 0), dry_run=True,
                        reason=str(line.get("reason") or ""))  # fmt: skip
    body: dict[str, Any] = json.loads(text)
    return body | {"timestamp": line.get("wall")}


def _ending(picture: dict[str, Any]) -> str:
    false_alarm = picture.get("false_alarm") or (picture.get("extra") or {}).get("false_alarm")
    said = any(line.get("event") == "false_alarm" for line in picture.get("history") or ())
    if false_alarm or said:
        return "false_alarms"
    return "right" if picture.get("state") in ("resolved",) or picture.get("acknowledged") else "open"


def print_report(report: dict[str, Any]) -> None:
    """For people: one line an action, then the sums."""
    console = Console()
    table = Table(box=None, pad_edge=False)
    for title in ("when (UTC)", "fault", "whom", "would have", "held back by", "ended"):
        table.add_column(title, overflow="fold")
    for line in report["would_have"]:
        target = line["target"] or {}
        whom = target.get("node") or target.get("job") or place_of(line["subject"] or {})
        when, ended = str(line["wall"])[5:19].replace("T", " "), line["ended"].replace("alarms", "alarm").replace("_", " ")
        words = (when, line["fault"], whom, line["action"], line["held_back_by"], ended)
        table.add_row(*(Text(plain(word)) for word in words))
    console.print(table if report["would_have"] else "Nothing was held back.")
    counts = report["counts"]
    judged = counts.get("right", 0) + counts.get("false_alarms", 0)
    console.print(
        f"Incidents confirmed: {counts.get('confirmed', 0)}; ended: {judged}, right: {counts.get('right', 0)},"
        f" false alarms: {counts.get('false_alarms', 0)}; open: {counts.get('open', 0)}."
    )


async def exported(config: Path | None, incident: str, raw: bool) -> dict[str, Any]:
    """One incident whole, redacted unless `raw`.

    Raises:
        InputError: no incident, or more than one, has a name that begins so.
    """
    read = read_config(config)
    settings, site = read.get(AlertsConfig), read.get(SiteSection).name
    redactor = Redactor(settings.redact)

    async def work(ledger: Ledger) -> dict[str, Any]:
        picture = await known_incident(ledger, incident)
        rows = [listed(row) for row in await ledger.list_rows(incident=picture["incident"], limit=10_000)]
        page = tell(picture, settings, site, redactor)
        whole = {"site": site, "page": page.text(), **picture, "deliveries": rows}
        return whole if raw else redactor.within(whole)

    result: dict[str, Any] = await with_ledger(config, work)
    return result
