"""Asks the witnesses over HTTP, as the commands do: the first that answers is enough."""

import http.client
import ssl
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

import msgspec

from detectors.witness.access import Role, token_for
from outrider.cli.options import NO_SETTINGS
from outrider.config.security import SecuritySection
from outrider.config.site import Config
from outrider.config.witness import WitnessSection
from outrider.errors import InputError, OutriderError
from outrider.wire import UNREADABLE

#: A witness that says nothing for so long is passed over, seconds.
TIMEOUT_SECONDS = 3.0


class RefusedError(OutriderError):
    """A witness answered, and said no. `status`: HTTP."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: the token would go along, to wherever it leads."""

    def redirect_request(self, *_: Any) -> None:
        return None


def open_straight(request: urllib.request.Request, seconds: float, trust: ssl.SSLContext | None) -> Any:
    """Asks the very address: no proxy of the environment (they stand on many a node, and would read the token), no redirect."""
    https = urllib.request.HTTPSHandler(context=trust)
    return urllib.request.build_opener(urllib.request.ProxyHandler({}), https, _Stay).open(request, timeout=seconds)


class Client:
    """The witnesses of one site, asked in their order."""

    def __init__(self, config: Config) -> None:
        """Raises InputError when the configuration names no witness, or a file that holds no authority."""
        self._members = config.get(WitnessSection).members
        if not self._members:
            if config.path is None:
                raise InputError(NO_SETTINGS)
            raise InputError("names no witness", file=str(config.path), key="witness.members")
        self._security = config.get(SecuritySection)
        self._trust = {member.name: member.trust() for member in self._members}

    def get(self, path: str, **query: Any) -> Any:
        """The answer to a question, as a viewer.

        Raises:
            OutriderError: no witness answers, or it refuses.
        """
        asked = {name: value for name, value in query.items() if value is not None}
        where = f"{path}?{urllib.parse.urlencode(asked)}" if asked else path
        return self._ask(where, None, token_for(self._security, Role.VIEWER))

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """Gives an order, as an operator. Raises OutriderError as `get` does."""
        return self._ask(path, msgspec.json.encode(body), token_for(self._security, Role.OPERATOR))

    def _ask(self, path: str, body: bytes | None, token: str) -> Any:
        silent = []
        for member in self._members:
            request = urllib.request.Request(  # noqa: S310 - the scheme is ours
                member.url + path, data=body, headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            )
            try:
                trust = self._trust[member.name]
                with open_straight(request, TIMEOUT_SECONDS, trust) as answer:
                    return msgspec.json.decode(answer.read())
            except urllib.error.HTTPError as error:
                with error:
                    if error.code < 500:
                        raise RefusedError(f"{member.name} refuses: {_reason(error.read())}", error.code) from None
                silent.append(f"{member.name}: HTTP {error.code}")
            except (OSError, http.client.HTTPException, *UNREADABLE) as error:
                reason = getattr(error, "reason", None) or error or type(error).__name__
                silent.append(f"{member.name} ({member.url}): {reason}")
        raise OutriderError(f"no witness answers: {'; '.join(silent)}")


def _reason(body: bytes) -> str:
    try:
        return str(msgspec.json.decode(body)["error"])
    except (TypeError, KeyError, *UNREADABLE):
        return "no reason given"
