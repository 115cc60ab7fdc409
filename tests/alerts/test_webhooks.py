"""Signing and checking by Standard Webhooks."""

import base64
import time

import pytest

from alerts.webhooks import WebhookVerificationError, read_secrets, signed_headers, verify
from outrider.errors import InputError

OLD, NEW = (base64.b64encode(bytes([byte]) * 24).decode() for byte in (1, 2))
BODY = '{"type":"incident.confirmed"}'


@pytest.mark.parametrize("receiver", [(OLD,), (NEW,), (NEW, OLD)], ids=["old key", "new key", "both"])
def test_message_signed_with_two_keys_is_accepted_by_holders_of_either(receiver: tuple[str, ...]) -> None:
    verify(receiver, BODY.encode(), signed_headers((NEW, OLD), "m1", BODY, time.time()))


@pytest.mark.parametrize(
    ("body", "skew", "secrets"),
    [(BODY + " ", 0, (OLD,)), (BODY, -600, (OLD,)), (BODY, 600, (OLD,)), (BODY, 0, (NEW,)), (BODY, 0, ())],
    ids=["changed body", "too old", "from the future", "other key", "no key"],
)
def test_message_that_is_not_whole_fresh_and_ours_is_refused(body: str, skew: float, secrets: tuple[str, ...]) -> None:
    headers = signed_headers((OLD,), "m1", BODY, time.time() + skew)
    with pytest.raises(WebhookVerificationError):
        verify(secrets, body.encode(), headers)


def test_message_without_signature_headers_is_refused() -> None:
    with pytest.raises(WebhookVerificationError):
        verify((OLD,), BODY.encode(), {"webhook-id": "m1"})


def test_secret_file_that_cannot_be_used_is_named_and_not_shown(tmp_path) -> None:
    with pytest.raises(InputError, match=r"missing\.key"):
        read_secrets([str(tmp_path / "missing.key")])
    bad = tmp_path / "bad.key"
    bad.write_text("not base64 !!")
    with pytest.raises(InputError, match=r"bad\.key") as caught:
        read_secrets([str(bad)])
    assert "not base64 !!" not in str(caught.value)
