"""The certificates' part of `outrider doctor`: what each witness shows to a client here, and the files of listeners here.

A file that a renewal spoilt is seen in the files only, as the listener goes on with the one before; one that was renewed but is not
shown, on the wire only. So both are looked at.
"""

import socket
import ssl
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from detectors.witness.findings import Finding, Patient
from outrider.config.agent import AgentSection
from outrider.config.alerts import AlertsConfig
from outrider.config.witness import Member, WitnessSection
from outrider.errors import InputError
from outrider.tls import Life, life_of, server_context, shows_name

#: A handshake takes milliseconds; a witness that takes longer is passed over, seconds.
HANDSHAKE_SECONDS: Final = 3.0


def certificates(patient: Patient) -> Iterator[Finding]:
    """All of them; nothing where the site speaks clear text only."""
    for member in patient.config.get(WitnessSection).members:
        if member.tls_cert:
            yield from _shown(member)
            yield from _file(f"files of {member.name}", member.tls_cert, member.tls_key, member)
    agent, alerts = patient.config.get(AgentSection), patient.config.get(AlertsConfig)
    if agent.metrics_tls_cert:
        yield from _file("files of agent", agent.metrics_tls_cert, agent.metrics_tls_key, None)
    if alerts.metrics_tls_cert:
        yield from _file("files of deliverer", alerts.metrics_tls_cert, alerts.metrics_tls_key, None)


def _shown(member: Member) -> Iterator[Finding]:
    """Shakes hands as every client does: OpenSSL says what it does not like (its end, its beginning, its names, its authority)."""
    check = f"certificate {member.name}"
    try:
        trust = member.trust()
        assert trust is not None
        with (
            socket.create_connection((member.address, member.http_port), HANDSHAKE_SECONDS) as plain,
            trust.wrap_socket(plain, server_hostname=member.address) as wrapped,
        ):
            life = life_of(wrapped.getpeercert())
    except InputError as error:
        yield Finding(check=check, state="fail", text=str(error))
        return
    except ssl.SSLCertVerificationError as error:
        yield Finding(check=check, state="fail", text=f"{member.url}: {error.verify_message}")
        return
    except OSError as error:
        yield Finding(check=check, state="unknown", text=f"{member.url} shows none: {error}")
        return
    yield _judged(check, member.url, life)
    if trust.life is not None and trust.life.is_soon_over(time.time()):
        yield _judged(f"authority {member.name}", member.tls_ca, trust.life)


def _file(check: str, cert: str, key: str, member: Member | None) -> Iterator[Finding]:
    """Of a listener on this machine; where its files are not, it runs elsewhere. A member's certificate must name its address."""
    if not Path(cert).exists():
        return
    try:
        life = server_context(cert, key).life
        assert life is not None
        if member is not None and not shows_name(cert, key, member.address):
            text = f"{cert} does not name {member.address}, where clients call {member.name} (subjectAltName): they refuse it"
            yield Finding(check=check, state="fail", text=text)
            return
    except InputError as error:
        yield Finding(check=check, state="fail", text=str(error))
        return
    yield _judged(check, cert, life)


def _judged(check: str, what: str, life: Life) -> Finding:
    now = time.time()
    begins, ends = (datetime.fromtimestamp(when, UTC).strftime("%Y-%m-%d %H:%M UTC") for when in life)
    if now < life.not_before:
        return Finding(check=check, state="fail", text=f"{what}: is not valid before {begins}; is this machine's clock right?")
    if now >= life.not_after:
        return Finding(check=check, state="fail", text=f"{what}: expired at {ends}")
    days = life.left_seconds(now) / 86400
    text = f"{what}: ends {ends}, in {f'{days:.0f} days' if days >= 2 else f'{24 * days:.0f} hours'}"
    if life.is_soon_over(now):
        return Finding(check=check, state="warn", text=f"{text}, and nothing has renewed it")
    return Finding(check=check, state="ok", text=text)
