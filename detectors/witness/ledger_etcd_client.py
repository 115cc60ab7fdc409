"""The few calls of etcd's v3 JSON gateway that the ledger needs, through aiohttp.

Source: etcd 3.4 documentation, "gRPC gateway". Keys and values are base64, 64-bit numbers are strings, and a false field is absent
(a transaction that failed its comparison has no `succeeded`).
"""

import asyncio
import base64
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import aiohttp
import msgspec

from detectors.witness.ledger import LedgerError
from outrider.wire import UNREADABLE

#: One call on a healthy cluster takes 2-3 ms, an election 0.7-2 s; a member that says nothing for so long is passed over.
CALL_SECONDS = 3.0
#: etcd refuses requests above 1.5 MiB; base64 adds a third.
VALUE_BYTES_MAX = 1 << 20
#: Keys a page when a range is read.
PAGE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A key with its value. `revision`: of its last change; `created`: of its making. `deleted`: the value is gone."""

    key: str
    value: bytes
    revision: int
    created: int
    deleted: bool = False


class CompactedError(Exception):
    """The revision to watch from is no longer kept: read everything again."""


class Etcd:
    """Calls the first endpoint that answers, and stays with it while it does."""

    def __init__(self, endpoints: tuple[str, ...]) -> None:
        self._endpoints = [endpoint.rstrip("/") for endpoint in endpoints]
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        self._session = aiohttp.ClientSession()

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def call(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """One call. Raises LedgerError when no endpoint answers or etcd refuses."""
        assert self._session is not None
        reasons = []
        for endpoint in list(self._endpoints):
            try:
                async with asyncio.timeout(CALL_SECONDS), self._session.post(endpoint + path, json=body) as answer:
                    told: dict[str, Any] = msgspec.json.decode(await answer.read())
                    if answer.status < 500 and answer.status != 404:
                        if answer.status >= 400:
                            raise LedgerError(f"etcd {endpoint}{path}: {told.get('message') or told.get('error')}")
                        return told
                    reasons.append(f"{endpoint}: {answer.status} {told.get('message') or told.get('error') or ''}")
            except (aiohttp.ClientError, OSError, TimeoutError, *UNREADABLE) as error:
                reasons.append(f"{endpoint}: {error or type(error).__name__}")
            self._endpoints.append(self._endpoints.pop(0))
        raise LedgerError(f"etcd cannot be reached: {'; '.join(reasons)}")

    async def read(self, prefix: str, *, keys_only: bool = False) -> tuple[list[Pair], int]:
        """All pairs below `prefix` in the order of their last change, as of one revision, and that revision."""
        pairs: list[Pair] = []
        revision, start, end = 0, prefix, after(prefix)
        while True:
            body = {"key": code(start), "range_end": code(end), "limit": PAGE, "keys_only": keys_only, "revision": revision}
            told = await self.call("/v3/kv/range", body)
            revision = revision or int(told["header"]["revision"])
            page = [_pair(item) for item in told.get("kvs", [])]
            pairs += page
            if not told.get("more"):
                return sorted(pairs, key=lambda pair: pair.revision), revision
            start = page[-1].key + "\0"

    async def transact(self, compare: list[dict[str, Any]], then: list[dict[str, Any]]) -> tuple[bool, int]:
        """A transaction: whether its comparisons held, and the revision it made."""
        told = await self.call("/v3/kv/txn", {"compare": compare, "success": then})
        return bool(told.get("succeeded")), int(told["header"]["revision"])

    async def grant(self, seconds: float) -> str:
        """A new etcd lease of at least `seconds` (whole seconds; etcd itself keeps a minimum). Returns its name."""
        return str((await self.call("/v3/lease/grant", {"TTL": max(1, -(-int(seconds * 1000) // 1000))}))["ID"])

    async def keep_alive(self, lease: str) -> bool:
        """Renews a lease; False: it is over."""
        return int((await self.call("/v3/lease/keepalive", {"ID": lease})).get("result", {}).get("TTL", 0)) > 0

    async def revoke(self, lease: str) -> int:
        """Ends a lease and deletes its keys; the revision that made, 0 where it was over already, which is no mistake."""
        try:
            told = await self.call("/v3/lease/revoke", {"ID": lease})
        except LedgerError as error:
            if "not found" not in str(error):
                raise
            return 0
        return int(told["header"]["revision"])

    async def watch(self, prefix: str, revision: int) -> AsyncIterator[list[Pair]]:
        """Changes below `prefix` from `revision` on, in order; an empty batch only tells that the watch stands.

        A batch's header is not its newest change: it may run ahead of what is still to come. Only the changes' own revisions count.

        Raises:
            LedgerError: the connection is lost.
            CompactedError: `revision` is no longer kept.
        """
        assert self._session is not None
        request = {"key": code(prefix), "range_end": code(after(prefix)), "start_revision": revision}
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CALL_SECONDS)
        endpoint = self._endpoints[0]
        try:
            async with self._session.post(
                f"{endpoint}/v3/watch", json={"create_request": request}, timeout=timeout, read_bufsize=4 << 20
            ) as answer:
                async for line in _lines(answer.content):
                    told = msgspec.json.decode(line).get("result", {})
                    if told.get("compact_revision"):
                        raise CompactedError
                    if told.get("canceled"):
                        raise LedgerError(f"etcd {endpoint}: the watch was ended: {told.get('cancel_reason', 'no reason given')}")
                    yield [_changed(event) for event in told.get("events", [])]
        except (aiohttp.ClientError, OSError, TimeoutError, *UNREADABLE) as error:
            self._endpoints.append(self._endpoints.pop(0))
            raise LedgerError(f"etcd {endpoint}: the watch broke: {error or type(error).__name__}") from None
        raise LedgerError(f"etcd {endpoint}: the watch ended")


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Lines of any length, as etcd sends one a batch of events."""
    waiting = b""
    async for chunk in content.iter_any():
        *lines, waiting = (waiting + chunk).split(b"\n")
        for line in lines:
            if line.strip():
                yield line


def code(text: str | bytes) -> str:
    """Base64, as the gateway wants keys and values."""
    return base64.b64encode(text.encode() if isinstance(text, str) else text).decode()


def after(prefix: str) -> str:
    """The first key that does not begin with `prefix`."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)


def put(key: str, value: bytes, lease: str = "0") -> dict[str, Any]:
    """A put of a transaction."""
    return {"request_put": {"key": code(key), "value": code(value), "lease": lease}}


def delete(key: str) -> dict[str, Any]:
    """A delete of a transaction."""
    return {"request_delete_range": {"key": code(key)}}


def is_absent(key: str) -> dict[str, Any]:
    """Comparison: there is no such key."""
    return {"key": code(key), "target": "CREATE", "result": "EQUAL", "create_revision": "0"}


def has_value(key: str, value: bytes) -> dict[str, Any]:
    """Comparison: the key has this value."""
    return {"key": code(key), "target": "VALUE", "result": "EQUAL", "value": code(value)}


def _pair(item: dict[str, Any], *, deleted: bool = False) -> Pair:
    return Pair(
        key=base64.b64decode(item["key"]).decode(), value=base64.b64decode(item.get("value", "")),
        revision=int(item.get("mod_revision", 0)), created=int(item.get("create_revision", 0)), deleted=deleted,
    )  # fmt: skip


def _changed(event: dict[str, Any]) -> Pair:
    return _pair(event["kv"], deleted=event.get("type") == "DELETE")
