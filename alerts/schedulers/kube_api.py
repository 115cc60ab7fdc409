"""The Kubernetes API over plain HTTP: get, list, merge patch at the version that was read, delete, and a watch that bears breaks.

Source: Kubernetes API concepts (resource versions, watch, 410 Gone), RFC 7386. A merge patch replaces a list whole, so what is
patched carries `metadata.resourceVersion`: somebody else's change in between is a 409, and we read again.
"""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import aiohttp

from alerts.delivery import wait_seconds
from alerts.schedulers.port import SchedulerError
from alerts.secret_files import read_token
from alerts.senders import make_session, whole_text
from outrider.config.targets import KubernetesTarget

#: How often a change is tried anew after a conflict; a node's status changes every few seconds, its spec hardly ever.
CONFLICTS_MAX: Final = 8
#: Objects in one page of a list, and pages: a server that always has one more lies.
PAGE: Final = 500
PAGES_MAX: Final = 2000
MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"

Object = dict[str, Any]


class Conflict(SchedulerError):
    """409: the object is there already, or was changed meanwhile."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path}: 409, it is there already or was changed meanwhile", "busy", again=True)


class Missing(SchedulerError):
    """404."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path}: 404, no such object", "no_such_object", again=False)


class Expired(Exception):
    """410: the watch's place in history is gone; list again."""


class KubeApi:
    """One API server. Raises SchedulerError for what a caller cannot mend."""

    def __init__(self, target: KubernetesTarget) -> None:
        self._token_file, self._ca_file, self._seconds = target.token_file, target.ca_file, target.timeout_seconds
        host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        self._url = (target.url or f"https://{host}:{port}").rstrip("/")
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        self._session = make_session(self._ca_file)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def get(self, path: str) -> Object:
        return await self._ask("GET", path)

    async def list(self, path: str, **query: str) -> tuple[list[Object], str]:
        """All objects, page by page, and the version to watch from."""
        found: list[Object] = []
        ask = {"limit": str(PAGE), **query}
        for _ in range(PAGES_MAX):
            page = await self._ask("GET", path, query=ask)
            found += page.get("items") or []
            meta = page.get("metadata") or {}
            if not meta.get("continue"):
                return found, str(meta.get("resourceVersion", ""))
            ask["continue"] = str(meta["continue"])
        raise SchedulerError(f"{path}: the list has no end", "strange_answer", again=True)

    async def change(self, path: str, make: Callable[[Object], Object | None]) -> Object | None:
        """Reads, lets `make` say the patch (None: nothing to do), patches at that version; again after a conflict.

        Returns:
            The object as it is now; None if there was nothing to do.
        """
        for _ in range(CONFLICTS_MAX):
            now = await self.get(path)
            patch = make(now)
            if patch is None:
                return None
            patch.setdefault("metadata", {})["resourceVersion"] = now["metadata"]["resourceVersion"]
            try:
                return await self._ask("PATCH", path, body=patch, kind=MERGE)
            except Conflict:
                continue
        raise SchedulerError(f"{path} changes faster than it can be patched", "busy", again=True)

    async def patch_status(self, path: str, patch: Object) -> None:
        await self._ask("PATCH", f"{path}/status", body=patch, kind=STRATEGIC)

    async def patch(self, path: str, patch: Object) -> None:
        """A change that needs no look before: what it names is wholly ours."""
        await self._ask("PATCH", path, body=patch, kind=MERGE)

    async def create(self, path: str, body: Object) -> None:
        """Raises Conflict if it is there already."""
        await self._ask("POST", path, body=body)

    async def delete(self, path: str, uid: str, grace_seconds: int) -> None:
        """Deletes that very object, not a later one of the same name."""
        body = {
            "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": grace_seconds, "preconditions": {"uid": uid}
        }  # fmt: skip
        await self._ask("DELETE", path, body=body)

    async def watch(self, path: str, version: str, seconds: float, **query: str) -> AsyncIterator[tuple[str, Object]]:
        """Events from `version` on, at most for `seconds`. Ends when the server ends it. Raises Expired (list again)."""
        assert self._session is not None
        ask = {"watch": "1", "resourceVersion": version, "timeoutSeconds": str(max(1, int(seconds))), **query}
        timeout = aiohttp.ClientTimeout(total=seconds, connect=self._seconds)
        try:
            async with self._session.get(
                self._url + path, params=ask, headers=self._headers(), timeout=timeout, allow_redirects=False
            ) as answer:
                if answer.status == 410:
                    raise Expired
                if answer.status != 200:
                    raise _failure(answer.status, await whole_text(answer), path)
                async for line in answer.content:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        if event["object"].get("code") == 410:
                            raise Expired
                        raise _failure(int(event["object"].get("code", 500)), json.dumps(event["object"]), path)
                    yield event["type"], event["object"]
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError, RecursionError, LookupError, TypeError, AttributeError):
            return  # a watch may break at any time, in the middle of a line too, or tell nonsense; the caller lists again

    async def until_gone(self, path: str, uids: set[str], seconds: float, **query: str) -> set[str]:
        """Waits until none of the objects `uids` is there any more. Returns those that still are."""
        end = time.monotonic() + seconds
        while True:
            items, version = await self.list(path, **query)
            uids = uids & {item["metadata"]["uid"] for item in items}
            if not uids or time.monotonic() >= end:
                return uids
            try:
                async for kind, item in self.watch(path, version, end - time.monotonic(), **query):
                    if kind == "DELETED":
                        uids.discard(item["metadata"]["uid"])
                        if not uids:
                            return uids
            except Expired:
                pass
            await asyncio.sleep(0.05)  # a server that ends each watch at once is not stormed

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {read_token(self._token_file)}"} if self._token_file else {}

    async def _ask(
        self,
        method: str,
        path: str,
        *,
        body: Object | None = None,
        kind: str = "application/json",
        query: dict[str, str] | None = None,
    ) -> Object:
        assert self._session is not None
        headers = self._headers() | ({"Content-Type": kind} if body is not None else {})
        data = json.dumps(body).encode() if body is not None else None
        timeout = aiohttp.ClientTimeout(total=self._seconds)
        try:
            async with self._session.request(
                method, self._url + path, data=data, headers=headers, params=query, timeout=timeout, allow_redirects=False
            ) as answer:
                text, status, wait = await whole_text(answer), answer.status, answer.headers.get("retry-after")
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise SchedulerError(
                f"API server cannot be reached: {error or 'no answer in time'}", "unreachable", again=True
            ) from None
        if status == 404:
            raise Missing(path)
        if status == 409:
            raise Conflict(path)
        if not 200 <= status < 300:
            raise _failure(status, text, path, wait)
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise SchedulerError(f"{path}: the answer is no JSON object", "strange_answer", again=True)
        return found


def _failure(status: int, text: str, path: str, wait: str | None = None) -> SchedulerError:
    try:
        said = str(json.loads(text).get("message") or text)
    except (ValueError, AttributeError, RecursionError):
        said = text
    words = f"{path}: {status} {' '.join(said.split())[:200]}"
    if status in (401, 403):
        return SchedulerError(words, "unauthorised", again=True)
    if status == 429 or status >= 500:
        return SchedulerError(words, "busy", again=True, wait=wait_seconds(wait, time.time()))
    return SchedulerError(words, "refused", again=False)
