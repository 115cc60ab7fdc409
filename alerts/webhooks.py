"""Standard Webhooks: signing what leaves and checking what arrives (headers webhook-id, webhook-timestamp, webhook-signature)."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from outrider.errors import InputError

__all__ = ["WebhookVerificationError", "read_secrets", "signed_headers", "verify"]


def read_secrets(paths: Sequence[str]) -> tuple[str, ...]:
    """The secrets in `paths`, one a file, in order.

    Raises:
        InputError: a file cannot be read or holds no base64 secret.
    """
    secrets = []
    for path in paths:
        try:
            secret = Path(path).read_text(encoding="ascii").strip()
            Webhook(secret)
        except OSError as error:
            raise InputError(f"webhook secret cannot be read: {error.strerror}", file=path) from None
        except (ValueError, RuntimeError, UnicodeDecodeError):
            raise InputError("holds no base64 webhook secret", file=path) from None
        secrets.append(secret)
    return tuple(secrets)


def signed_headers(secrets: Sequence[str], message_id: str, body: str, now_wall: float) -> dict[str, str]:
    """The three headers for one delivery; with several secrets, one signature each (key rotation).

    Args:
        now_wall: seconds since 1970; the receiver refuses a message more than five minutes off.
    """
    moment = datetime.fromtimestamp(int(now_wall), tz=UTC)
    signatures = [Webhook(secret).sign(msg_id=message_id, timestamp=moment, data=body) for secret in secrets]
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(int(now_wall)),
        "webhook-signature": " ".join(signatures),
        "content-type": "application/json",
    }


def verify(secrets: Sequence[str], body: bytes, headers: Mapping[str, str]) -> None:
    """Accepts a message that any of `secrets` signed.

    Raises:
        WebhookVerificationError: no signature fits, a header is missing, or the time is off by more than five minutes.
    """
    failure: Exception = WebhookVerificationError("no secret is configured")
    for secret in secrets:
        try:
            Webhook(secret).verify(body, dict(headers), json_parse=False)
            return
        except (WebhookVerificationError, ValueError) as error:
            failure = error
    raise WebhookVerificationError(str(failure))
