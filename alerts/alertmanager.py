"""Confirmed incidents go straight to Alertmanager's API v2: posted, posted again with what was done since, and resolved.

What is posted is always read from the ledger at that moment, so a late or repeated row can never bring an old state back.
Source of the shapes: prometheus/alertmanager `api/v2/openapi.yaml`, `postableAlerts`.
"""

import asyncio
import contextlib
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import aiohttp
import structlog

from alerts.delivery import Attempt, judge
from alerts.redact import Redactor
from alerts.secret_files import read_token
from alerts.senders import make_session
from alerts.story import Page, tell
from detectors.witness.ledger import Ledger, LedgerError
from detectors.witness.outbox import OutboxRow
from outrider.config.alerts import AlertsConfig
from outrider.config.targets import AlertmanagerTarget

log = structlog.get_logger()

TYPES = ("incident.confirmed", "incident.resolved")
#: Open incidents that are posted again; far more than a cluster has, and a bound.
OPEN_MAX = 2000
OVER = ("resolved", "refuted")


class AlertmanagerSender:
    """One Alertmanager, alone or clustered."""

    def __init__(
        self, target: AlertmanagerTarget, settings: AlertsConfig, ledger: Ledger, site: str, leaves: Mapping[str, str]
    ) -> None:
        self.name, self.types, self.attempts_max = target.name, target.types or TYPES, target.attempts_max
        self._target, self._settings, self._ledger, self._site = target, settings, ledger, site
        self._leaves = leaves
        self._redactor = Redactor(settings.redact)
        self._token = read_token(target.token_file)
        self._session: aiohttp.ClientSession | None = None
        self._keeper: asyncio.Task[None] | None = None
        #: Incidents that we told of and that are not over, oldest first, with the labels they had.
        self._open: dict[str, dict[str, str]] = {}

    async def open(self) -> None:
        self._session = make_session()
        self._keeper = asyncio.create_task(self._keep())

    async def close(self) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeper
        if self._session is not None:
            await self._session.close()

    async def send(self, row: OutboxRow, now_wall: float) -> Attempt:
        if row.type == "test":
            return await self._post([test_alert(row.id, self._site, now_wall)], now_wall)
        picture = await self._ledger.incident(row.incident)
        if picture is None:
            return Attempt(outcome="refused", reason="the ledger no longer knows the incident", reason_code="unknown_incident")
        alerts = self._alerts(picture, now_wall)
        attempt = await self._post(alerts, now_wall)
        if attempt.outcome == "accepted":
            self._remember(picture, alerts)
        return attempt

    def _remember(self, picture: dict[str, Any], alerts: list[dict[str, Any]]) -> None:
        incident = str(picture["incident"])
        self._open.pop(incident, None)
        if picture.get("state") not in OVER:
            self._open[incident] = alerts[0]["labels"]
            while len(self._open) > OPEN_MAX:
                del self._open[next(iter(self._open))]

    def _alerts(self, picture: dict[str, Any], now_wall: float) -> list[dict[str, Any]]:
        """The incident's alert; and the end of the one it was before, if it has learnt more about its subject since."""
        page = tell(picture, self._settings, self._site, self._redactor)
        if "switch" not in page.labels and (leaf := self._leaves.get(page.labels.get("node", ""))):
            page.labels["switch"] = leaf
        since = str(picture.get("opened") or _rfc3339(now_wall))
        made = [alert(page, since, now_wall, self._target.hold_seconds)]
        before = self._open.get(str(picture["incident"]))
        if before is not None and before != page.labels:
            made.append({**made[0], "labels": before, "endsAt": _rfc3339(now_wall)})
        return made

    async def _keep(self) -> None:
        """Posts what is open again and again, with what was done since."""
        while True:
            await asyncio.sleep(self._target.repeat_seconds)
            try:
                await self._repeat(time.time())
            except LedgerError as error:
                log.warning("ledger_unreachable", error=str(error))
            except Exception:  # our own bug must not end the repeating: what is open would end in Alertmanager
                log.exception("repeat_bug", target=self.name)

    async def _repeat(self, now_wall: float) -> None:
        """What was told is read from the ledger each time: another deliverer may have told it."""
        rows = await self._ledger.list_rows(state="done", limit=OPEN_MAX)
        told = {row.incident for row in rows if row.target == self.name and row.type == "incident.confirmed"}
        for picture in await self._ledger.incidents(OPEN_MAX):
            incident = str(picture["incident"])
            if incident not in self._open and (incident not in told or picture.get("state") in OVER):
                continue
            whole = await self._ledger.incident(incident)
            if whole is None:
                continue
            alerts = self._alerts(whole, now_wall)
            attempt = await self._post(alerts, now_wall)
            if attempt.outcome == "accepted":
                self._remember(whole, alerts)
            else:
                log.warning("alert_not_repeated", target=self.name, incident=incident, reason=attempt.reason)

    async def _post(self, alerts: list[dict[str, Any]], now_wall: float) -> Attempt:
        """To every member; one yes is enough, for they gossip. Otherwise the first answer counts."""
        assert self._session is not None
        attempts = await asyncio.gather(*(self._post_one(url, alerts, now_wall) for url in self._target.urls))
        good = [attempt for attempt in attempts if attempt.outcome == "accepted"]
        chosen = (good or attempts)[0]
        members = {url: attempt.reason for url, attempt in zip(self._target.urls, attempts, strict=True)}
        return Attempt(
            outcome="retry" if chosen.outcome == "gone" else chosen.outcome, reason=chosen.reason, reason_code=chosen.reason_code,
            status=chosen.status, retry_seconds=chosen.retry_seconds, detail={"members": members},
        )  # fmt: skip

    async def _post_one(self, url: str, alerts: list[dict[str, Any]], now_wall: float) -> Attempt:
        assert self._session is not None
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        timeout = aiohttp.ClientTimeout(total=self._target.timeout_seconds)
        try:
            async with self._session.post(
                f"{url.rstrip('/')}/api/v2/alerts", json=alerts, headers=headers, allow_redirects=False, timeout=timeout
            ) as answer:
                text = (await answer.content.read(300)).decode("utf-8", "replace").strip()
                return judge(answer.status, answer.headers.get("retry-after"), answer.headers.get("location"), text, now_wall)
        except TimeoutError:
            return Attempt(outcome="retry", reason=f"no answer within {self._target.timeout_seconds:g} s", reason_code="timeout")
        except (aiohttp.ClientError, OSError) as error:
            return Attempt(outcome="retry", reason=f"cannot be reached: {error}", reason_code="unreachable")


def alert(page: Page, since: str, now_wall: float, hold_seconds: float) -> dict[str, Any]:
    """One `postableAlert` (pure). `since`: RFC 3339. What is over ends now, what is open by itself after `hold_seconds`."""
    ends = now_wall if page.over else now_wall + hold_seconds
    annotations = {"summary": page.title, "description": page.body}
    annotations |= {f"{name.lower()}_url": url for name, url in page.links.items()}
    return {
        "labels": page.labels, "annotations": annotations, "startsAt": since, "endsAt": _rfc3339(ends),
        "generatorURL": page.links.get("Incident", ""),
    }  # fmt: skip


def test_alert(name: str, site: str, now_wall: float) -> dict[str, Any]:
    """A test page: ends by itself after a minute."""
    labels = {"alertname": "OutriderTest", "severity": "info", "cluster": site, "source": "outrider", "incident": name}
    notes = {"summary": f"A test from Outrider of {site}. Nothing happened."}
    return {
        "labels": labels,
        "annotations": notes,
        "startsAt": _rfc3339(now_wall),
        "endsAt": _rfc3339(now_wall + 60),
        "generatorURL": "",
    }


def _rfc3339(wall: float) -> str:
    return datetime.fromtimestamp(wall, tz=UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
