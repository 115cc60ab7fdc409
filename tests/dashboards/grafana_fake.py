"""A fake of Grafana's HTTP API: the dashboards, folders and versions routes, with the answers that Grafana 11 gives.

Shapes from Grafana's documentation of the dashboard, folder and dashboard-versions APIs: 412 with `status` `version-mismatch`
when the sent version is not the newest and `overwrite` is false; 404 and 401 as JSON messages.
"""

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

TOKEN = "glsa_test"


class Grafana:
    """What the server holds. `before_save` is called when a save arrives, before it is looked at."""

    def __init__(self) -> None:
        self.boards: dict[str, dict[str, Any]] = {}
        self.versions: dict[str, list[dict[str, Any]]] = {}
        self.folders: dict[str, str] = {}
        self.provisioned: set[str] = set()
        self.before_save: Callable[[str], None] = lambda uid: None
        self.url = ""

    def save(self, dashboard: dict[str, Any], who: str, message: str) -> int:
        """Keeps a new version, as Grafana does: with an id and a number."""
        uid = dashboard["uid"]
        number = len(self.versions.setdefault(uid, [])) + 1
        self.boards[uid] = {**dashboard, "id": 7, "version": number}
        self.versions[uid].append({"version": number, "message": message, "createdBy": who})
        return number

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        match method, path.partition("?")[0].strip("/").split("/")[1:]:
            case "GET", ["dashboards", "uid", uid, "versions"]:
                return 200, {"versions": list(reversed(self.versions[uid]))}
            case "GET", ["dashboards", "uid", uid]:
                if uid not in self.boards:
                    return 404, {"message": "Dashboard not found"}
                return 200, {"dashboard": self.boards[uid], "meta": {"provisioned": uid in self.provisioned}}
            case "POST", ["dashboards", "db"]:
                return self._save(body)
            case "GET", ["folders", uid]:
                return (200, {"uid": uid}) if uid in self.folders else (404, {"message": "folder not found"})
            case "POST", ["folders"]:
                self.folders[body["uid"]] = body["title"]
                return 200, body
        return 404, {"message": "Not found"}

    def _save(self, body: dict[str, Any]) -> tuple[int, Any]:
        uid = body["dashboard"]["uid"]
        self.before_save(uid)
        there = self.boards.get(uid)
        if there is not None and not body["overwrite"] and body["dashboard"].get("version") != there["version"]:
            return 412, {"message": "The dashboard has been changed by someone else", "status": "version-mismatch"}
        if body["folderUid"] not in self.folders:
            return 404, {"message": "folder not found"}
        number = self.save(body["dashboard"], "sa-outrider", body["message"])
        return 200, {"status": "success", "uid": uid, "version": number}


@contextmanager
def serving() -> Iterator[Grafana]:
    """Serves a fake on loopback."""
    grafana = Grafana()

    class Handler(http.server.BaseHTTPRequestHandler):
        def _do(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            known = self.headers.get("Authorization") == f"Bearer {TOKEN}"
            status, told = grafana.answer(self.command, self.path, body) if known else (401, {"message": "Invalid API key"})
            text = json.dumps(told).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = _do

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    grafana.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield grafana
    finally:
        server.shutdown()
        server.server_close()
