"""The page's own files: read once, named by their digest, sent compressed, under a strict content policy."""

import gzip
import hashlib
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

from aiohttp import web

from detectors.witness.http import Refusal

_KINDS: Final = {
    ".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml", ".txt": "text/plain; charset=utf-8",
}  # fmt: skip
#: Stands in `index.html` where the digest belongs.
_PLACE: Final = b"@BUILD@"
#: A file whose name holds the digest never changes: a year, the longest that caches heed.
_FOR_EVER: Final = "public, max-age=31536000, immutable"


@dataclass(frozen=True, slots=True)
class File:
    """One file as it is sent. `zipped` is the same, compressed."""

    body: bytes
    zipped: bytes
    kind: str
    etag: str


class Shell:
    """All files of the page. `build` is the digest of all of them: another build is another page."""

    def __init__(self) -> None:
        found = dict(_walk(files("dashboards.console") / "static", ""))
        digest = hashlib.sha256()
        for name in sorted(found):
            digest.update(name.encode() + b"\0" + found[name] + b"\0")
        self.build = digest.hexdigest()[:16]
        self._files = {
            name: _file(body.replace(_PLACE, self.build.encode()) if name == "index.html" else body, name)
            for name, body in found.items()
        }

    def index(self, request: web.Request, policy: str) -> web.Response:
        """The page itself; asked for again each time, and then mostly unchanged."""
        answer = _send(request, self._files["index.html"], "no-cache")
        answer.headers["Content-Security-Policy"] = policy
        answer.headers["Referrer-Policy"] = "no-referrer"
        answer.headers["X-Content-Type-Options"] = "nosniff"
        return answer

    def file(self, request: web.Request) -> web.Response:
        """A file of the page. One of another build is not to be had: it would not fit the rest."""
        file = self._files.get(request.match_info["name"])
        if file is None or request.match_info["build"] != self.build:
            raise Refusal(404, "unknown", "no such file in this build; load the page again")
        answer = _send(request, file, _FOR_EVER)
        answer.headers["X-Content-Type-Options"] = "nosniff"
        return answer


def content_policy(others: list[str]) -> str:
    """Nothing but our own files, no inline script or style; questions go to this witness and to `others` (their addresses)."""
    askable = " ".join(("'self'", *others))
    return (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        f"connect-src {askable}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _walk(folder: Traversable, prefix: str) -> list[tuple[str, bytes]]:
    found = []
    for entry in folder.iterdir():
        if entry.is_dir():
            found += _walk(entry, f"{prefix}{entry.name}/")
        else:
            found.append((prefix + entry.name, entry.read_bytes()))
    return found


def _file(body: bytes, name: str) -> File:
    kind = _KINDS.get("." + name.rpartition(".")[2], "application/octet-stream")
    return File(body, gzip.compress(body, mtime=0), kind, f'"{hashlib.sha256(body).hexdigest()[:32]}"')


def _send(request: web.Request, file: File, cache: str) -> web.Response:
    headers = {"ETag": file.etag, "Cache-Control": cache, "Vary": "Accept-Encoding"}
    if request.headers.get("If-None-Match") == file.etag:
        return web.Response(status=304, headers=headers)
    headers["Content-Type"] = file.kind
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        return web.Response(body=file.zipped, headers={**headers, "Content-Encoding": "gzip"})
    return web.Response(body=file.body, headers=headers)
