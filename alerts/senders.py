"""What a target is to the deliverer: something that takes a row of the outbox and says what came of it. One kind a module."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

import aiohttp
import structlog

from alerts.delivery import Attempt, post
from alerts.redact import Redactor
from alerts.webhooks import read_secrets
from detectors.witness.ledger import Ledger
from detectors.witness.outbox import OutboxRow
from outrider.config.alerts import AlertsConfig
from outrider.config.targets import Target
from outrider.errors import InputError
from outrider.tls import client_context

log = structlog.get_logger()
#: Largest answer of a scheduler, bytes: a list of all jobs of 10,000 nodes is some 50 MB; one without end must not fill the memory.
ANSWER_MAX = 128 << 20


class Sender(Protocol):
    """One target. `send` never raises for what the other side does; it may be told the same row twice and must bear it.

    `types`: the webhook types it wants; empty: all. `attempts_max`: attempts before a row is a dead letter.
    """

    name: str
    types: tuple[str, ...]
    attempts_max: int

    async def open(self) -> None: ...

    async def send(self, row: OutboxRow, now_wall: float) -> Attempt: ...

    async def close(self) -> None: ...


class WebhookSender:
    """Signed POSTs to one receiver. The secrets are read anew when their files change, so that a key can be rotated in place."""

    def __init__(self, target: Target, redactor: Redactor) -> None:
        self.name, self.types, self.attempts_max = target.name, target.types, target.attempts_max
        self._redactor = redactor
        self._target = target
        self._secrets = read_secrets(target.secret_files)
        self._stamp = self._stamps()
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        self._session = make_session(self._target.ca_file)

    async def send(self, row: OutboxRow, now_wall: float) -> Attempt:
        assert self._session is not None
        return await post(self._session, self._target, self._current_secrets(), row.id, self._redactor.body(row.body), now_wall)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    def _current_secrets(self) -> tuple[str, ...]:
        stamp = self._stamps()
        if stamp != self._stamp:
            try:
                self._secrets, self._stamp = read_secrets(self._target.secret_files), stamp
                log.info("secrets_read_anew", target=self.name)
            except InputError as error:  # half written: the old ones still hold
                log.warning("secrets_unreadable", target=self.name, error=str(error))
        return self._secrets

    def _stamps(self) -> tuple[tuple[int, int], ...]:
        found = []
        for path in self._target.secret_files:
            try:
                status = Path(path).stat()
                found.append((status.st_mtime_ns, status.st_ino))
            except OSError:
                found.append((0, 0))
        return tuple(found)


def make_senders(
    settings: AlertsConfig, ledger: Ledger, site: str, leaves: Mapping[str, str] = MappingProxyType({})
) -> list[Sender]:
    """All targets of the configuration, each by its kind; a kind's module is loaded only if it is used.

    Args:
        leaves: node -> its one switch, a label of alerts about it.

    Raises:
        InputError: a secret cannot be read, or a package that a kind needs is missing.
    """
    redactor = Redactor(settings.redact)
    senders: list[Sender] = [WebhookSender(target, redactor) for target in settings.targets]
    if settings.alertmanagers:
        from alerts.alertmanager import AlertmanagerSender

        senders += [AlertmanagerSender(target, settings, ledger, site, leaves) for target in settings.alertmanagers]
    if settings.notify:
        from alerts.notify import NotifySender

        senders += [NotifySender(target, settings, ledger, site) for target in settings.notify]
    if settings.commands:
        from alerts.command_target import CommandSender

        senders += [CommandSender(target) for target in settings.commands]
    if settings.slurm or settings.kubernetes or settings.hosts:
        from alerts.schedulers import make_scheduler_senders

        senders += make_scheduler_senders(settings)
    return senders


async def whole_text(answer: aiohttp.ClientResponse) -> str:
    """The body as text.

    Raises:
        aiohttp.ClientPayloadError: it has no end within `ANSWER_MAX`.
    """
    found = bytearray()
    async for piece in answer.content.iter_any():
        found += piece
        if len(found) > ANSWER_MAX:
            raise aiohttp.ClientPayloadError(f"its answer is larger than {ANSWER_MAX >> 20} MiB")
    return found.decode("utf-8", "replace")


def make_session(ca_file: str = "", connections: int = 64) -> aiohttp.ClientSession:
    """A client session that trusts `ca_file` as it is now (empty: the system's authorities) and ignores the environment's proxies.

    Raises:
        InputError: the file holds no certificate.
    """
    context = client_context(ca_file, log) if ca_file else True
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context, limit=connections), trust_env=False)
