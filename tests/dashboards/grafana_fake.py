"""A fake of Grafana's HTTP API: dashboards, folders, versions, groups of alert rules, with the answers of Grafana 11 to 13.

412 with `status` `version-mismatch` when the sent version is not the newest and `overwrite` is false; 403 with `accessErrorId` for
lack of rights, and, as Grafana 13 does, for a folder that is not there. Every request and every answer is held against the
published OpenAPI (`grafana_openapi.py`); what does not fit is kept in `wrong`.
"""

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from grafana_openapi import misfit, route_of

TOKEN = "glsa_test"
DENIED = {
    "accessErrorId": "ACE0000000001", "message": "You'll need additional permissions to perform this action.",
    "title": "Access denied",
}  # fmt: skip


class Grafana:
    """What the server holds. `before_save` is called when a save arrives, before it is looked at.

    `may_see_absence`: whether it says 404 for a folder that is not there; Grafana 13 says 403. `may_write`: the token's role.
    """

    def __init__(self) -> None:
        self.boards: dict[str, dict[str, Any]] = {}
        self.versions: dict[str, list[dict[str, Any]]] = {}
        self.folders: dict[str, str] = {}
        self.groups: dict[str, dict[str, Any]] = {}
        self.provisioned: set[str] = set()
        self.refusal: dict[str, Any] | None = None
        self.before_save: Callable[[str], None] = lambda uid: None
        self.may_see_absence = self.may_write = True
        self.url = ""
        self.wrong: list[str] = []
        self.calls: list[tuple[str, str]] = []
        self.open_to_changes: set[str] = set()

    def save(self, dashboard: dict[str, Any], who: str, message: str) -> int:
        """Keeps a new version, as Grafana does: with an id and a number."""
        uid = dashboard["uid"]
        number = len(self.versions.setdefault(uid, [])) + 1
        self.boards[uid] = {**dashboard, "id": 7, "version": number}
        self.versions[uid].append({"version": number, "message": message, "createdBy": who, "uid": uid, "id": number})
        return number

    def edit_rule(self, group: str, place: int, **changes: Any) -> None:
        """A person changes a rule on Grafana's page."""
        self.groups[group]["rules"][place].update(changes)

    def answer(self, method: str, path: str, body: Any, headers: Any) -> tuple[int, Any]:
        """The answer to a call, checked against the published OpenAPI."""
        self.calls.append((method, path))
        models = route_of(method, path)
        if models is None:
            self.wrong.append(f"{method} {path}: no such route")
            return 404, {"message": "Not found"}
        asked, answers = models
        if asked and (why := misfit(asked, body)):
            self.wrong.append(f"{method} {path}: {why}")
        status, told = self._answer(method, path, body, headers)
        if status not in answers or (why := misfit(answers[status], told)):
            self.wrong.append(f"{method} {path} answers {status}: {why if status in answers else 'not in the OpenAPI'}")
        return status, told

    def _answer(self, method: str, path: str, body: Any, headers: Any) -> tuple[int, Any]:
        if headers.get("Authorization") != f"Bearer {TOKEN}":
            return 401, {"message": "Invalid API key"}
        if method != "GET" and not self.may_write:
            return 403, DENIED
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
                absent = (404, {"message": "folder not found"}) if self.may_see_absence else (403, DENIED)
                return (200, {"uid": uid, "title": self.folders[uid], "id": 1}) if uid in self.folders else absent
            case "POST", ["folders"]:
                self.folders[body["uid"]] = body["title"]
                return 200, {**body, "id": 1, "url": f"/dashboards/f/{body['uid']}"}
            case "GET", ["v1", "provisioning", "folder", _, "rule-groups", name]:
                return (200, self.groups[name]) if name in self.groups else (404, {"message": "rule group not found"})
            case "PUT", ["v1", "provisioning", "folder", uid, "rule-groups", name]:
                return self._put_group(uid, name, body, headers)
        raise AssertionError(path)

    def _save(self, body: dict[str, Any]) -> tuple[int, Any]:
        uid = body["dashboard"]["uid"]
        self.before_save(uid)
        there = self.boards.get(uid)
        if uid in self.provisioned:
            return 400, {"message": "Cannot save provisioned dashboard"}
        if self.refusal is not None:
            return 412, self.refusal
        if there is not None and not body["overwrite"] and body["dashboard"].get("version") != there["version"]:
            return 412, {"message": "The dashboard has been changed by someone else", "status": "version-mismatch"}
        if body["folderUid"] not in self.folders:
            return 404, {"message": "folder not found"}
        number = self.save(body["dashboard"], "sa-outrider", body["message"])
        return 200, {"id": 7, "status": "success", "uid": uid, "url": f"/d/{uid}/x", "slug": "x", "version": number}

    def _put_group(self, uid: str, name: str, body: dict[str, Any], headers: Any) -> tuple[int, Any]:
        if uid not in self.folders:
            return 400, {"message": "folder does not exist"}
        if any(rule["ruleGroup"] != name for rule in body["rules"]):
            return 400, {"message": "rule group mismatch"}
        if headers.get("X-Disable-Provenance") == "true":
            self.open_to_changes.add(name)
        # Grafana fills in what a query leaves out, and does not give back what is false or empty.
        kept = json.loads(json.dumps(body))
        for number, rule in enumerate(kept["rules"]):
            rule |= {"id": number + 1, "orgID": 1, "updated": "2026-01-01T00:00:00Z"}
            rule.pop("isPaused") if not rule.get("isPaused") else None
            for query in rule["data"]:
                query["model"] |= {"intervalMs": 1000, "maxDataPoints": 43200}
        self.groups[name] = kept
        return 200, kept


@contextmanager
def serving() -> Iterator[Grafana]:
    """Serves a fake on loopback."""
    grafana = Grafana()
    with answering(grafana.answer) as grafana.url:
        yield grafana


@contextmanager
def answering(answer: Callable[[str, str, Any, Any], tuple[int, Any]]) -> Iterator[str]:
    """A server on loopback whose answers are that function's: method, path, body, headers -> status, JSON. Yields its address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def _do(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            status, told = answer(self.command, self.path, body, self.headers)
            text = json.dumps(told).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_PUT = _do

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
