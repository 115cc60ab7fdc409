"""One attempt to deliver one webhook, and what its answer means. Decides nothing about when: that is the deliverer's part."""

import math
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, Literal

import aiohttp

from alerts.webhooks import signed_headers
from outrider.config.targets import Target

#: Longest wait that a receiver may ask for, seconds: an hour, so that a wrong header cannot park an order for ever.
RETRY_AFTER_MAX = 3600.0
#: How much of a refusal's body is kept for people.
ANSWER_BYTES = 300

#: 4xx answers that may pass: busy, too early, too many; and those that a person mends on the receiver's side.
_MAY_PASS = frozenset({401, 403, 404, 408, 423, 425, 429})


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """`outcome`: `accepted`; `retry` (a later try makes sense, `retry_seconds` if the receiver said when); `refused` (never);
    `gone` (410: the receiver wants no more of anything). `detail`: what a person or the council may want to know."""

    outcome: Literal["accepted", "retry", "refused", "gone"]
    reason: str
    reason_code: str
    status: int | None = None
    retry_seconds: float | None = None
    detail: dict[str, Any] = field(default_factory=dict)


async def post(
    session: aiohttp.ClientSession,
    target: Target,
    secrets: tuple[str, ...],
    message_id: str,
    body: str,
    now_wall: float,
) -> Attempt:
    """POSTs one signed body; redirects are not followed. Never raises for what the other side does."""
    headers = signed_headers(secrets, message_id, body, now_wall)
    timeout = aiohttp.ClientTimeout(total=target.timeout_seconds)
    try:
        async with session.post(target.url, data=body.encode(), headers=headers, allow_redirects=False, timeout=timeout) as answer:
            text = await _said(answer)
            return judge(answer.status, answer.headers.get("retry-after"), answer.headers.get("location"), text, now_wall)
    except TimeoutError:
        return Attempt(outcome="retry", reason=f"no answer within {target.timeout_seconds:g} s", reason_code="timeout")
    except aiohttp.ClientConnectorCertificateError as error:
        return Attempt(outcome="retry", reason=f"certificate: {error.certificate_error}", reason_code="certificate")
    except (aiohttp.ClientError, OSError) as error:
        return Attempt(outcome="retry", reason=f"cannot be reached: {error}", reason_code="unreachable")


async def _said(answer: aiohttp.ClientResponse) -> str:
    """The beginning of what it said; the status stands, also where the body never comes."""
    try:
        return (await answer.content.read(ANSWER_BYTES)).decode("utf-8", "replace").strip()
    except (TimeoutError, aiohttp.ClientError, OSError):
        return ""


def judge(status: int, retry_after: str | None, location: str | None, text: str, now_wall: float) -> Attempt:
    """What a status means (pure). Source: Standard Webhooks, "Deliverability"; RFC 9110 for Retry-After and 410."""
    said = f"{status}: {text}" if text else str(status)
    if 200 <= status < 300:
        return Attempt(outcome="accepted", reason=said, reason_code="accepted", status=status)
    if status == 410:
        return Attempt(outcome="gone", reason=said, reason_code="gone", status=status)
    if 300 <= status < 400:
        return Attempt(
            outcome="refused",
            reason=f"redirects to {location or 'nowhere'}, not followed",
            reason_code="redirect",
            status=status,
        )
    if status >= 500 or status in _MAY_PASS:
        wait = wait_seconds(retry_after, now_wall)
        code = {401: "unauthorised", 403: "unauthorised", 404: "not_found"}.get(status, "busy" if wait is not None else "error")
        return Attempt(outcome="retry", reason=said, reason_code=code, status=status, retry_seconds=wait)
    return Attempt(outcome="refused", reason=said, reason_code="refused", status=status)


def wait_seconds(retry_after: str | None, now_wall: float) -> float | None:
    """Retry-After as seconds from now, 0 to an hour; None where it is absent or unreadable (NaN would never be over)."""
    if retry_after is None:
        return None
    try:
        seconds = float(retry_after)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(retry_after).timestamp() - now_wall
        except (ValueError, OverflowError, TypeError):
            return None
    if math.isnan(seconds):
        return None
    return min(max(seconds, 0.0), RETRY_AFTER_MAX)
