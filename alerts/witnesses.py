"""Tells the witnesses what this side learns, as an agent would: with the agents' token, and known to a majority or told again."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import aiohttp
import structlog

from alerts.senders import make_session
from outrider.config.alerts import AlertsConfig
from outrider.config.security import SecuritySection
from outrider.config.site import Config
from outrider.config.witness import Member, WitnessSection
from outrider.signals import Signal, encode_batch
from outrider.wire import SENT_HEADER

#: One witness's answer, seconds; it takes milliseconds.
ANSWER_SECONDS = 3.0
log = structlog.get_logger()


class Witnesses:
    """The witnesses of one site. Opens a session for each telling: that happens a few times a day."""

    def __init__(self, section: WitnessSection, security: SecuritySection) -> None:
        self._members, self._token = section.members, security.agent_tokens()[0]

    async def tell(self, signals: Sequence[Signal]) -> bool:
        """Sends to all; True: a majority has them. A repeat is dropped there by the signals' ids."""
        told = await asyncio.gather(*(self._one(member, signals) for member in self._members))
        return sum(told) > len(self._members) // 2

    async def _one(self, member: Member, signals: Sequence[Signal]) -> bool:
        headers = {
            "Authorization": f"Bearer {self._token}", "Content-Type": "application/msgpack", SENT_HEADER: f"{time.monotonic():.6f}",
        }  # fmt: skip
        timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
        session = make_session(member.tls_ca)
        try:
            url, data = f"{member.url}/v1/signals", encode_batch(list(signals))
            async with session.post(url, data=data, headers=headers, timeout=timeout, allow_redirects=False) as answer:
                if answer.status == 200:
                    return True
                log.warning("witness_refuses", witness=member.name, status=answer.status)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            log.warning("witness_unreachable", witness=member.name, error=str(error))
        finally:
            await session.close()
            await asyncio.sleep(0)  # a connection that failed its TLS handshake is let go a turn later
        return False


@asynccontextmanager
async def listening(config: Config) -> AsyncIterator[None]:
    """Listens to Kueue while it lasts, where there are clusters and witnesses that can be told."""
    targets, section, security = config.get(AlertsConfig).kubernetes, config.get(WitnessSection), config.get(SecuritySection)
    if not (targets and section.members and security.agent_token_file):
        yield
        return
    from alerts.schedulers.kueue_watch import watching

    async with watching(targets, Witnesses(section, security).tell):
        yield
