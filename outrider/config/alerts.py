"""Section `[alerts]`: who is told by webhook, and how hard we try."""

from msgspec import Struct


class Target(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One receiver of webhooks.

    `name` is what outbox and audit call it. `url` is where bodies are POSTed; redirects are not followed. `types` are the
    webhook types it wants (empty: all). `secret_files` hold one Standard Webhooks secret each (base64, with or without
    `whsec_`); every delivery is signed with all of them, so that a key is rotated by adding the new one first.
    `timeout_seconds` (> 0) bounds one attempt. `attempts_max` (>= 1) attempts, then the row is a dead letter that a person
    can send again.
    """

    name: str
    url: str
    types: tuple[str, ...] = ()
    secret_files: tuple[str, ...] = ()
    timeout_seconds: float = 5.0
    attempts_max: int = 12

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise ValueError(f"url must start with http:// or https:// (is {self.url!r})")
        if self.timeout_seconds <= 0 or self.attempts_max < 1:
            raise ValueError("timeout_seconds must be above 0 and attempts_max at least 1")


class AlertsConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`poll_seconds` (0.01..10): how often the deliverer looks into the outbox; smaller is quicker and costs a query each.
    `backoff_seconds` and `backoff_seconds_max`: first and largest wait between attempts (doubling, with jitter).
    `breaker_failures`: consecutive failures after which a target is left alone for `breaker_seconds`."""

    targets: tuple[Target, ...] = ()
    poll_seconds: float = 0.05
    backoff_seconds: float = 0.5
    backoff_seconds_max: float = 300.0
    breaker_failures: int = 5
    breaker_seconds: float = 30.0
