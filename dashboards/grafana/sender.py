"""A Grafana that things are sent to, and what became of them."""

from dataclasses import dataclass
from typing import Any, Final, Literal

from outrider.errors import InputError

#: Grafana 13 says 403 for a thing that is not there, to all but admins.
_NOT_SEEN: Final = (403, 404)

Outcome = Literal["made", "changed", "as it was", "conflict"]


@dataclass(frozen=True, kw_only=True)
class Pushed:
    """What became of one dashboard or group of rules; in a dry run, what would."""

    uid: str
    outcome: Outcome
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class Sender:
    """A Grafana, and how to treat it.

    `overwrite`: also over what a person changed. `dry_run`: only look.
    """

    api: Any
    overwrite: bool = False
    dry_run: bool = False

    def look(self, ask: Any, *names: str) -> Any:
        """What is there under these names; None where nothing is, or nothing that the token may see."""
        try:
            return ask(*names)
        except error_type() as failed:
            if failed.status_code in _NOT_SEEN:
                return None
            raise


def error_type() -> Any:
    """The client's exception for an answer that is no success. Raises InputError where the client is not installed."""
    try:
        from grafana_client.client import GrafanaException
    except ImportError:
        raise InputError(
            "needs grafana-client in an environment of its own: install outrider[grafana] there and run this command from it",
            key="--push",
        ) from None
    return GrafanaException
