"""Groups of alert rules to Grafana's provisioning API, open to changes in its pages (`X-Disable-Provenance`).

Grafana keeps no history of rules. So each rule of ours carries a hash of what was sent, as an annotation: a rule that does not fit
its own mark any more, or has none, was changed or made by a person, and the whole group is left alone.
"""

import hashlib
import json
from typing import Any, Final

from dashboards.grafana.sender import Pushed, Sender

#: The annotation that holds the mark.
MARK: Final = "outrider_sent"
#: Fields of a rule that Grafana keeps as they were sent.
_FIELDS: Final = ("title", "condition", "for", "noDataState", "execErrState", "labels", "isPaused")
_OF_A_QUERY: Final = ("refId", "datasourceUid", "relativeTimeRange")
_OF_A_MODEL: Final = ("expr", "instant", "range", "type", "expression", "conditions")


def push_group(sender: Sender, group: dict[str, Any]) -> Pushed:
    """Sends one group: `title`, `folderUid`, `interval` (seconds) and `rules`."""
    name = f"alert rules {group['title']}"
    there = sender.look(sender.api.alertingprovisioning.get_rule_group, group["folderUid"], group["title"])
    held = {rule["uid"]: rule for rule in (there or {}).get("rules") or []}
    marked = [_marked(rule) for rule in group["rules"]]
    sent = {rule["uid"]: content(rule) for rule in marked}
    if held and {uid: content(rule) for uid, rule in held.items()} == sent and there["interval"] == group["interval"]:
        return Pushed(uid=name, outcome="as it was")
    strange = sorted(rule["title"] for rule in held.values() if rule.get("annotations", {}).get(MARK) != content(rule))
    if strange and not sender.overwrite:
        others = f" and {len(strange) - 1} more" if len(strange) > 1 else ""
        detail = f"{strange[0]}{others} changed or made in Grafana; --overwrite puts ours in its place"
        return Pushed(uid=name, outcome="conflict", detail=detail)
    if not sender.dry_run:
        api = sender.api.alertingprovisioning
        api.update_rule_group(group["folderUid"], group["title"], {**group, "rules": marked}, disable_provenance=True)
    return Pushed(uid=name, outcome="changed" if held else "made")


def content(rule: dict[str, Any]) -> str:
    """A hash of what a rule says, of the fields that Grafana gives back as they were sent."""
    annotations = {name: text for name, text in rule.get("annotations", {}).items() if name != MARK}
    queries = [
        {**_some(query, _OF_A_QUERY), "model": _some(query["model"], _OF_A_MODEL)}
        for query in sorted(rule["data"], key=lambda one: str(one["refId"]))
    ]
    text = json.dumps([_some(rule, _FIELDS), annotations, queries], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _marked(rule: dict[str, Any]) -> dict[str, Any]:
    return {**rule, "annotations": {**rule["annotations"], MARK: content(rule)}}


def _some(value: dict[str, Any], fields: tuple[str, ...]) -> dict[str, Any]:
    """The fields that say something: Grafana may leave out or add what is false or empty."""
    return {field: value[field] for field in fields if value.get(field)}
