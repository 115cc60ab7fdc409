"""Sends dashboards and alert rules to Grafana's API, and never over somebody's change.

Needs grafana-client in an environment of its own (extra `grafana`): it brings a rewritten urllib3 that would replace the one under
the agent's requests. A dashboard of ours is known by the message of its newest version, a rule by the mark it carries.
"""

from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import urlsplit

from dashboards.grafana.push_rules import push_group
from dashboards.grafana.sender import Outcome, Pushed, Sender, error_type
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
#: A folder that somebody made meanwhile.
_THERE_NOW: Final = (409, 412)
#: `status` of a refusal with 412 -> what to do about it.
_REFUSALS: Final = {
    "version-mismatch": "somebody saved it meanwhile; run it again, or use --overwrite",
    "name-exists": "another dashboard of the folder has its name; rename that one",
    "plugin-dashboard": "it belongs to a plugin of Grafana",
}


def push(
    url: str,
    token: str,
    dashboards: Iterable[dict[str, Any]],
    groups: Iterable[dict[str, Any]] = (),
    *,
    overwrite: bool = False,
    dry_run: bool = False,
) -> list[Pushed]:
    """Sends all of them; a conflict with one does not hold the others back.

    Args:
        groups: of alert rules, as `alert_rules.groups` makes them.

    Raises:
        InputError: the address or the token is wrong, or the client is not installed.
        OutriderError: Grafana does not answer, or refuses.
    """
    sender = Sender(api=_client(url, token), overwrite=overwrite, dry_run=dry_run)
    try:
        _folder(sender)
        done = [_push(sender, dashboard) for dashboard in dashboards]
        return done + [push_group(sender, group) for group in groups]
    except error_type() as failed:
        raise _told(failed, url) from None
    except OSError:  # the client's own exceptions about connections are of this kind; their words may hold the request
        raise OutriderError(f"{url}: Grafana does not answer") from None


def _push(sender: Sender, dashboard: dict[str, Any]) -> Pushed:
    uid = dashboard["uid"]
    there = sender.look(sender.api.dashboard.get_dashboard, uid)
    if there is not None and there.get("meta", {}).get("provisioned"):
        raise InputError(f"dashboard {uid} is provisioned from a file: change the file, or remove the provider", key="--push")
    if there is not None and _same(there["dashboard"], dashboard):
        return Pushed(uid=uid, outcome="as it was")
    if there is not None and not sender.overwrite and (who := _stranger(sender.api, uid)):
        return Pushed(uid=uid, outcome="conflict", detail=f"changed in Grafana by {who}; --overwrite puts ours in its place")
    outcome: Outcome = "changed" if there is not None else "made"
    if sender.dry_run:
        return Pushed(uid=uid, outcome=outcome)
    body: dict[str, Any] = {"dashboard": {**dashboard, "id": None}, "folderUid": FOLDER_UID, "overwrite": sender.overwrite}
    body["message"] = f"{MESSAGE} {__version__}"
    if there is not None:
        # Grafana refuses with 412 if it holds another version by then: somebody saved in between.
        body["dashboard"].update(id=there["dashboard"].get("id"), version=there["dashboard"]["version"])
    try:
        sender.api.dashboard.update_dashboard(body)
    except error_type() as failed:
        if failed.status_code != 412:
            raise
        status = failed.response.get("status") if isinstance(failed.response, dict) else None
        return Pushed(uid=uid, outcome="conflict", detail=_REFUSALS.get(str(status), _reason(failed)))
    return Pushed(uid=uid, outcome=outcome)


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


def _folder(sender: Sender) -> None:
    if sender.look(sender.api.folder.get_folder, FOLDER_UID) is not None or sender.dry_run:
        return
    try:
        sender.api.folder.create_folder(FOLDER_TITLE, uid=FOLDER_UID)
    except error_type() as failed:
        if failed.status_code not in _THERE_NOW:
            raise


def check(url: str) -> None:
    """Raises InputError where nothing could be sent: the address is none, or the client is not installed."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError(f"{url!r} is no address such as https://grafana.example", key="--push")
    error_type()


def _client(url: str, token: str) -> Any:
    check(url)
    from grafana_client import GrafanaApi, TokenAuth

    return GrafanaApi.from_url(url=url, credential=TokenAuth(token), timeout=TIMEOUT_SECONDS)


def _told(failed: Any, url: str) -> OutriderError:
    words = {401: "the token is not known", 403: f"the token may not do this (it needs the role Editor): {_reason(failed)}"}
    if failed.status_code in words:
        return InputError(f"{url}: {words[failed.status_code]}", key="--token-file")
    return OutriderError(f"{url}: Grafana answers {failed.status_code}: {_reason(failed)}")


def _reason(failed: Any) -> str:
    response = failed.response
    return " ".join(str(response.get("message", response) if isinstance(response, dict) else response).split())[:200]
