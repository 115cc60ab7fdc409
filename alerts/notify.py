"""People through apprise: PagerDuty, Slack, Feishu, DingTalk, WeCom, Teams, mail. Needs the extra `notify`."""

import asyncio
import fnmatch
from typing import Any, Protocol, cast

from alerts.delivery import Attempt
from alerts.redact import Redactor
from alerts.secret_files import read_lines
from alerts.story import Page, tell
from detectors.witness.ledger import Ledger
from detectors.witness.outbox import OutboxRow
from outrider.config.alerts import AlertsConfig
from outrider.config.targets import NotifyTarget
from outrider.errors import InputError

#: How apprise names what a page is.
KINDS = {"critical": "failure", "warning": "warning", "info": "info"}


class Notifier(Protocol):
    """What is used of `apprise.Apprise`."""

    def add(self, servers: str) -> bool: ...

    async def async_notify(self, *, body: str, title: str, notify_type: str) -> bool | None: ...


class NotifySender:
    """One group of people. Each incident is told once, and once more when it is over.

    Args:
        make: makes an empty notifier (default: apprise).
    """

    def __init__(self, target: NotifyTarget, settings: AlertsConfig, ledger: Ledger, site: str, make: Any = None) -> None:
        self.name, self.types, self.attempts_max = target.name, target.types, target.attempts_max
        self._target, self._settings, self._ledger, self._site = target, settings, ledger, site
        self._redactor = Redactor(settings.redact)
        self._notifier: Notifier = (make or _apprise)()
        for number, address in enumerate(read_lines(target.url_file), 1):
            if not self._notifier.add(address):
                raise InputError("is no address that apprise knows", file=target.url_file, line=number)

    async def open(self) -> None:
        """Nothing is kept open: apprise connects for each notice."""

    async def close(self) -> None:
        """See `open`."""

    async def send(self, row: OutboxRow, now_wall: float) -> Attempt:
        if row.type == "test":
            page = Page(title=f"Test from Outrider of {self._site}", severity="info", body="Nothing happened.", labels={})
            return await self._notify(page)
        picture = await self._ledger.incident(row.incident)
        if picture is None:
            return Attempt(outcome="refused", reason="the ledger no longer knows the incident", reason_code="unknown_incident")
        page = tell(picture, self._settings, self._site, self._redactor)
        job = page.labels.get("job", "")
        if self._target.jobs and not any(fnmatch.fnmatchcase(job, pattern) for pattern in self._target.jobs):
            return Attempt(outcome="accepted", reason=f"not of these jobs: {job or 'no job'}", reason_code="not_wanted")
        if page.severity not in self._target.severities:
            return Attempt(outcome="accepted", reason=f"severity {page.severity} is not wanted", reason_code="not_wanted")
        return await self._notify(page)

    async def _notify(self, page: Page) -> Attempt:
        kind = "success" if page.over else KINDS.get(page.severity, "warning")
        try:
            async with asyncio.timeout(self._target.timeout_seconds):
                good = await self._notifier.async_notify(body=page.text(), title=page.title, notify_type=kind)
        except TimeoutError:
            return Attempt(outcome="retry", reason=f"no answer within {self._target.timeout_seconds:g} s", reason_code="timeout")
        if good:
            return Attempt(outcome="accepted", reason="told", reason_code="accepted")
        return Attempt(outcome="retry", reason="at least one of the addresses did not take it", reason_code="unreachable")


def _apprise() -> Notifier:
    try:
        import apprise
    except ModuleNotFoundError:
        raise InputError("needs the package apprise: install outrider[notify]", key="alerts.notify") from None
    return cast(Notifier, apprise.Apprise())
