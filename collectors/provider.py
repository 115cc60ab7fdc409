"""Notices of a cloud provider that it will take the node: spot reclaim, scheduled events, host maintenance.

Off unless the configuration names the provider. Witnesses: `node.reclaim`. Cost: one small request each 5 s. Rights: to reach the
metadata service. Source: the providers' public documentation of their instance metadata services: AWS (`spot/instance-action`,
`events/recommendations/rebalance`; token first), Google Cloud (`instance/preempted`, `instance/maintenance-event`), Azure
(`scheduledevents`, API 2020-07-01).
"""

import calendar
import json
import time
from email.utils import parsedate_to_datetime
from typing import Any, ClassVar

from collectors.frame.changes import Changes
from collectors.frame.types import Collector, CollectorError, Note, NotSupported, Outcome, Place, Readings
from collectors.http_text import Fetcher, libraries
from outrider.config.collectors import CollectorsSection

LOOK_SECONDS = 5.0
ADDRESSES = {"aws": "http://169.254.169.254", "gcp": "http://metadata.google.internal", "azure": "http://169.254.169.254"}
#: What each provider gives from notice to end, where the notice does not say when (their documentation).
NOTICE_SECONDS = {"aws": 120.0, "gcp": 30.0, "azure": 30.0}
_AZURE_TAKES = ("Preempt", "Terminate", "Redeploy", "Reboot")


class Notice(dict[str, Any]):
    """What the provider announces: `event`, and `at` (seconds since 1970) where it says when."""


class Provider(Collector):
    """See the module."""

    name: ClassVar[str] = "provider"
    group: ClassVar[str] = "services"
    interval_seconds: ClassVar[float] = LOOK_SECONDS

    def __init__(self, place: Place, note: Note) -> None:
        super().__init__(place, note)
        self._provider = place.section.provider
        self._base = place.section.provider_url or ADDRESSES.get(self._provider, "")
        self._fetcher = Fetcher(4.0)
        self._changes = Changes(refresh_seconds=30.0)
        self._token, self._token_until = "", 0.0

    @classmethod
    def wanted(cls, section: CollectorsSection) -> NotSupported | None:
        return None if section.provider else NotSupported("[collectors] provider is not set")

    @classmethod
    def preload(cls) -> None:
        libraries()

    def supported(self) -> NotSupported | None:
        return self.wanted(self.place.section)

    def close(self) -> None:
        self._fetcher.close()

    def read(self, now: float) -> Outcome:
        self.note("metadata service")
        match self._provider:
            case "aws":
                notice = self._aws(now)
            case "gcp":
                notice = self._gcp()
            case _:
                notice = self._azure()
        if notice is None:
            return Readings()
        left = NOTICE_SECONDS[self._provider]
        if "at" in notice:
            left = max(0.0, notice["at"] - time.time())
        if not self._changes.due("notice", notice["event"], now):
            return Readings()
        return Readings(
            signals=[self.signal(now, "reclaim", round(left, 1), data={"event": notice["event"], "provider": self._provider})]
        )

    def _get(self, path: str, headers: dict[str, str]) -> str | None:
        return self._fetcher.get(self._base + path, headers, missing_ok=True)

    def _aws(self, now: float) -> Notice | None:
        if now >= self._token_until:
            token = self._fetcher.put(self._base + "/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "600"})
            self._token, self._token_until = token, now + 300.0
        text = self._get("/latest/meta-data/spot/instance-action", {"X-aws-ec2-metadata-token": self._token})
        if text is None:
            return None
        action = _table(text, "spot/instance-action")
        return _with_time(Notice(event=f"spot {action.get('action', 'interruption')}"), action.get("time"))

    def _gcp(self) -> Notice | None:
        headers = {"Metadata-Flavor": "Google"}
        if (self._get("/computeMetadata/v1/instance/preempted", headers) or "").strip().upper() == "TRUE":
            return Notice(event="preempted")
        event = (self._get("/computeMetadata/v1/instance/maintenance-event", headers) or "NONE").strip()
        return None if event == "NONE" else Notice(event=event.lower()[:60])

    def _azure(self) -> Notice | None:
        text = self._get("/metadata/scheduledevents?api-version=2020-07-01", {"Metadata": "true"})
        events = _table(text or "{}", "scheduledevents").get("Events") or []
        for event in events:
            if isinstance(event, dict) and event.get("EventType") in _AZURE_TAKES:
                return _with_time(Notice(event=str(event["EventType"]).lower()), event.get("NotBefore"))
        return None


def _table(text: str, what: str) -> dict[str, Any]:
    try:
        table = json.loads(text)
    except (ValueError, RecursionError):
        raise CollectorError(f"{what}: the answer is not JSON") from None
    if not isinstance(table, dict):
        raise CollectorError(f"{what}: the answer is not an object")
    return table


def _with_time(notice: Notice, text: object) -> Notice:
    """Adds when it happens: ISO 8601 in UTC, or the form of HTTP dates."""
    if not isinstance(text, str) or not text:
        return notice
    try:
        notice["at"] = float(calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ")))
    except ValueError:
        try:
            notice["at"] = parsedate_to_datetime(text).timestamp()
        except ValueError:
            return notice
    return notice
