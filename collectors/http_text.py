"""Fetches a text page over HTTP within a deadline and a size, whatever the server does: for exporters and metadata services."""

import sys
import time
import warnings
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, cast

from collectors.frame.types import CollectorError

if TYPE_CHECKING:
    import requests

#: A page of 16 GPUs with hundreds of fields is about 1 MB.
PAGE_BYTES_MAX = 8 << 20


class Fetcher:
    """Keeps one connection open. The package `requests` is loaded at the first use, in the child that needs it.

    Args:
        seconds: for the whole answer, however slowly it trickles.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._session: requests.Session | None = None

    def get(self, url: str, headers: Mapping[str, str] | None = None, *, missing_ok: bool = False) -> str | None:
        """The page's text; None for a 404 where `missing_ok`. Redirects are not followed. Raises CollectorError."""
        return self._fetch("GET", url, headers, missing_ok=missing_ok)

    def put(self, url: str, headers: Mapping[str, str]) -> str:
        """The answer to an empty PUT. Raises CollectorError."""
        return self._fetch("PUT", url, headers, missing_ok=False) or ""

    def _fetch(self, method: str, url: str, headers: Mapping[str, str] | None, *, missing_ok: bool) -> str | None:
        requests, urllib3 = libraries()
        if self._session is None:
            self._session = requests.Session()
            self._session.trust_env = False  # a proxy of the environment is not meant for the node's own services
        until = time.monotonic() + self._seconds
        try:
            with self._session.request(
                method, url, headers=dict(headers or {}), timeout=self._seconds / 2, stream=True, allow_redirects=False
            ) as answer:
                if answer.status_code == 404 and missing_ok:
                    return None
                if answer.status_code != 200:
                    raise CollectorError(f"{url}: status {answer.status_code}")
                parts, size = [], 0
                # One packet at a time: a server that sends a byte a second must not hold us for a full block.
                while part := answer.raw.read1(65536, decode_content=True):
                    parts.append(part)
                    size += len(part)
                    if size > PAGE_BYTES_MAX:
                        raise CollectorError(f"{url}: the page is longer than {PAGE_BYTES_MAX} bytes")
                    if time.monotonic() > until:
                        raise CollectorError(f"{url}: the answer did not end within {self._seconds:g} s")
        except (requests.Timeout, urllib3.exceptions.TimeoutError):
            raise CollectorError(f"{url}: no answer within {self._seconds / 2:g} s") from None
        except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
            raise CollectorError(f"{url}: {_reason(error)}") from None
        return b"".join(parts).decode("utf-8", "replace")

    def close(self) -> None:
        """Gives the connection back."""
        if self._session is not None:
            self._session.close()
            self._session = None


def libraries() -> "tuple[ModuleType, ModuleType]":
    """`requests` and `urllib3`, without what they can do without: guessers of character sets (2 MiB; pages are UTF-8), SOCKS."""
    modules = cast(dict[str, ModuleType | None], sys.modules)
    spared = [name for name in ("chardet", "charset_normalizer", "socks") if name not in modules]
    modules.update(dict.fromkeys(spared))  # None is what the import system calls absent
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # requests says that it misses one; it is asked for bytes only
            import requests
            import urllib3
    finally:
        for name in spared:
            del modules[name]
    return requests, urllib3


def _reason(error: Exception) -> str:
    """The last part of a nested error's text: what a person wants to know."""
    text = str(error)
    for word in ("Connection refused", "No route to host", "Name or service not known", "IncompleteRead", "reset by peer"):
        if word in text:
            return word
    return text[:120]
