"""Sends dashboards to Grafana's API, and never over somebody's change.

Needs grafana-client in an environment of its own (extra `grafana`): it brings a rewritten urllib3 that would replace the one under
the agent's requests. What is ours is known by the message of its newest version.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from outrider import __version__
from outrider.errors import InputError, OutriderError

#: How our versions' messages begin.
MESSAGE: Final = "outrider dashboards"
FOLDER_UID: Final = "outrider"
FOLDER_TITLE: Final = "Outrider"
#: An answer that takes longer has failed.
TIMEOUT_SECONDS: Final = 15.0
#: What Grafana itself changes in a dashboard that it keeps.
_KEPT_BY_GRAFANA: Final = ("id", "version")

Outcome = Literal["made", "changed", "as it was", "conflict"]


@dataclass(frozen=True, kw_only=True)
class Pushed:
    """What became of one dashboard."""

    uid: str
    outcome: Outcome
    detail: str = ""


def push(url: str, token: str, dashboards: Iterable[dict[str, Any]], *, overwrite: bool) -> list[Pushed]:
    """Sends all of them; a conflict with one does not hold the others back.

    Args:
        overwrite: also over what a person changed in Grafana.

    Raises:
        InputError: the address or the token is wrong, or the client is not installed.
        OutriderError: Grafana does not answer, or refuses.
    """
    api, error = _client(url, token)
    try:
        _folder(api)
        return [_push(api, dashboard, overwrite) for dashboard in dashboards]
    except error as failed:
        raise _told(failed, url) from None
    except OSError:  # the client's own exceptions about connections are of this kind; their words may hold the request
        raise OutriderError(f"{url}: Grafana does not answer") from None


def _push(api: Any, dashboard: dict[str, Any], overwrite: bool) -> Pushed:
    uid = dashboard["uid"]
    there = _existing(api, uid)
    if there is not None and _same(there["dashboard"], dashboard):
        return Pushed(uid=uid, outcome="as it was")
    if there is not None and not overwrite and (who := _stranger(api, uid)):
        return Pushed(uid=uid, outcome="conflict", detail=f"changed in Grafana by {who}; --overwrite puts ours in its place")
    body: dict[str, Any] = {"dashboard": {**dashboard, "id": None}, "folderUid": FOLDER_UID, "overwrite": overwrite}
    body["message"] = f"{MESSAGE} {__version__}"
    if there is not None:
        # Grafana refuses with 412 if it holds another version by then: somebody saved in between.
        body["dashboard"].update(id=there["dashboard"].get("id"), version=there["dashboard"]["version"])
    try:
        api.dashboard.update_dashboard(body)
    except _error_type() as failed:
        if failed.status_code != 412:
            raise
        return Pushed(uid=uid, outcome="conflict", detail=f"{_reason(failed)}; run it again, or use --overwrite")
    return Pushed(uid=uid, outcome="changed" if there is not None else "made")


def _existing(api: Any, uid: str) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = api.dashboard.get_dashboard(uid)
    except _error_type() as failed:
        if failed.status_code == 404:
            return None
        raise
    if found.get("meta", {}).get("provisioned"):
        raise InputError(f"dashboard {uid} is provisioned from a file: change the file, or remove the provider", key="--push")
    return found


def _stranger(api: Any, uid: str) -> str:
    """Who saved the newest version, if it was not us; empty otherwise."""
    told = api.dashboard_versions.get_dashboard_versions_by_uid(uid)
    versions = told.get("versions", []) if isinstance(told, dict) else told
    newest: dict[str, Any] = max(versions, key=lambda one: one["version"], default={})
    if str(newest.get("message", "")).startswith(MESSAGE):
        return ""
    return str(newest.get("createdBy") or "somebody")


def _same(there: dict[str, Any], ours: dict[str, Any]) -> bool:
    return {key: value for key, value in there.items() if key not in _KEPT_BY_GRAFANA} == ours


def _folder(api: Any) -> None:
    try:
        api.folder.get_folder(FOLDER_UID)
    except _error_type() as failed:
        if failed.status_code != 404:
            raise
        api.folder.create_folder(FOLDER_TITLE, uid=FOLDER_UID)


def _client(url: str, token: str) -> tuple[Any, Any]:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError(f"{url!r} is no address such as https://grafana.example", key="--push")
    error = _error_type()
    from grafana_client import GrafanaApi, TokenAuth

    return GrafanaApi.from_url(url=url, credential=TokenAuth(token), timeout=TIMEOUT_SECONDS), error


def _error_type() -> Any:
    try:
        from grafana_client.client import GrafanaException
    except ImportError:
        raise InputError(
            "needs grafana-client in an environment of its own: install outrider[grafana] there and run this command from it",
            key="--push",
        ) from None
    return GrafanaException


def _told(failed: Any, url: str) -> OutriderError:
    words = {401: "the token is not known", 403: "the token may not write dashboards (it needs the role Editor)"}
    if failed.status_code in words:
        return InputError(f"{url}: {words[failed.status_code]}", key="--token-file")
    return OutriderError(f"{url}: Grafana answers {failed.status_code}: {_reason(failed)}")


def _reason(failed: Any) -> str:
    response = failed.response
    return str(response.get("message", response) if isinstance(response, dict) else response)[:200]
