"""What Grafana's published OpenAPI says of the routes that a push uses: fields, types, what is required, which answers there are.

Facts of Grafana's `public/api-merged.json`, as the client that is generated from it (grafana-openapi-client-go) has them.
"""

import re
from typing import Any

#: Model -> field -> (type, required). A type is a Python type, a model's name, or [a type] for a list of it.
MODELS: dict[str, dict[str, tuple[Any, bool]]] = {
    "SaveDashboardCommand": {
        "UpdatedAt": (str, False), "dashboard": (dict, False), "folderId": (int, False), "folderUid": (str, False),
        "isFolder": (bool, False), "message": (str, False), "overwrite": (bool, False), "userId": (int, False),
    },
    "PostDashboardOKBody": {
        "id": (str, True), "status": (str, True), "title": (str, True), "uid": (str, True), "url": (str, True),
        "version": (int, True),
    },
    "ErrorResponseBody": {"error": (str, False), "message": (str, True), "status": (str, False)},
    "DashboardFullWithMeta": {"dashboard": (dict, False), "meta": ("DashboardMeta", False)},
    "DashboardMeta": {
        **dict.fromkeys(("canAdmin", "canDelete", "canEdit", "canSave", "canStar", "hasAcl", "isFolder", "isSnapshot", "isStarred",
                         "provisioned", "publicDashboardEnabled"), (bool, False)),
        **dict.fromkeys(("created", "createdBy", "expires", "folderTitle", "folderUid", "folderUrl", "provisionedExternalId",
                         "publicDashboardUid", "slug", "type", "updated", "updatedBy", "url"), (str, False)),
        "annotationsPermissions": (dict, False), "folderId": (int, False), "version": (int, False),
    },
    "DashboardVersionResponseMeta": {"continueToken": (str, False), "versions": (["DashboardVersionMeta"], False)},
    "DashboardVersionMeta": {
        "created": (str, False), "createdBy": (str, False), "dashboardId": (int, False), "data": (dict, False), "id": (int, False),
        "message": (str, False), "parentVersion": (int, False), "restoredFrom": (int, False), "uid": (str, False),
        "version": (int, False),
    },
    "CreateFolderCommand": {"description": (str, False), "parentUid": (str, False), "title": (str, False), "uid": (str, False)},
    "Folder": {
        **dict.fromkeys(("canAdmin", "canDelete", "canEdit", "canSave", "hasAcl"), (bool, False)),
        **dict.fromkeys(("created", "createdBy", "managedBy", "parentUid", "title", "uid", "updated", "updatedBy", "url"),
                        (str, False)),
        **dict.fromkeys(("id", "orgId", "version"), (int, False)),
        "accessControl": (dict, False), "parents": (["Folder"], False),
    },
    "AlertRuleGroup": {
        "folderUid": (str, False), "interval": (int, False), "rules": (["ProvisionedAlertRule"], False), "title": (str, False),
    },
    "ProvisionedAlertRule": {
        "annotations": (dict, False), "condition": (str, True), "data": (["AlertQuery"], True), "execErrState": (str, True),
        "folderUID": (str, True), "for": (str, True), "id": (int, False), "isPaused": (bool, False),
        "keep_firing_for": (str, False),
        "labels": (dict, False), "missingSeriesEvalsToResolve": (int, False), "noDataState": (str, True),
        "notification_settings": (dict, False), "orgID": (int, True), "provenance": (str, False), "record": (dict, False),
        "ruleGroup": (str, True), "title": (str, True), "uid": (str, False), "updated": (str, False),
    },
    "AlertQuery": {
        "datasourceUid": (str, False), "model": (dict, False), "queryType": (str, False), "refId": (str, False),
        "relativeTimeRange": ("RelativeTimeRange", False),
    },
    "RelativeTimeRange": {"from": (int, False), "to": (int, False)},
    "ValidationError": {"message": (str, False)},
}  # fmt: skip
#: Limits beside the types.
FORMS = {
    "execErrState": re.compile("OK|Alerting|Error"), "noDataState": re.compile("Alerting|NoData|OK"),
    "ruleGroup": re.compile("(?s).{1,190}"), "uid": re.compile("[a-zA-Z0-9-_]{1,40}"), "for": re.compile(r"(\d+[smhdw])+"),
}  # fmt: skip
_ERRORS = dict.fromkeys((400, 401, 403, 404, 500), "ErrorResponseBody")
#: Method and path -> the request's model, status -> the answer's model.
ROUTES: dict[tuple[str, str], tuple[str, dict[int, str]]] = {
    ("GET", "/api/folders/{}"): ("", {**_ERRORS, 200: "Folder"}),
    ("POST", "/api/folders"): ("CreateFolderCommand", {**_ERRORS, 200: "Folder", 409: "ErrorResponseBody"}),
    ("GET", "/api/dashboards/uid/{}"): ("", {**_ERRORS, 200: "DashboardFullWithMeta", 406: "ErrorResponseBody"}),
    ("GET", "/api/dashboards/uid/{}/versions"): ("", {**_ERRORS, 200: "DashboardVersionResponseMeta"}),
    ("POST", "/api/dashboards/db"): (
        "SaveDashboardCommand", {**_ERRORS, 200: "PostDashboardOKBody", 412: "ErrorResponseBody", 422: "ErrorResponseBody"},
    ),
    ("GET", "/api/v1/provisioning/folder/{}/rule-groups/{}"): ("", {**_ERRORS, 200: "AlertRuleGroup"}),
    ("PUT", "/api/v1/provisioning/folder/{}/rule-groups/{}"): (
        "AlertRuleGroup", {**_ERRORS, 200: "AlertRuleGroup", 400: "ValidationError"},
    ),
}  # fmt: skip
#: Where servers are known to answer otherwise than their OpenAPI says: the id is a number, the name is a slug, and a refusal for
#: lack of rights names itself.
DIFFERS = {
    "PostDashboardOKBody": {"id": (int, True), "title": (str, False), "slug": (str, False), "folderUid": (str, False)},
    "ErrorResponseBody": {"accessErrorId": (str, False), "title": (str, False), "messageId": (str, False),
                          "statusCode": (int, False), "traceID": (str, False)},
}  # fmt: skip


def route_of(method: str, path: str) -> tuple[str, dict[int, str]] | None:
    """The models of a call; None: the API has no such route."""
    plain = path.partition("?")[0]
    for (known, form), models in ROUTES.items():
        if method == known and re.fullmatch(re.escape(form).replace(r"\{\}", "[^/]+"), plain):
            return models
    return None


def misfit(model: str, value: Any) -> str | None:
    """What keeps `value` from being such a model; None: nothing."""
    if not isinstance(value, dict):
        return f"{model}: {value!r} is no object"
    fields = MODELS[model] | DIFFERS.get(model, {})
    if unknown := value.keys() - fields.keys():
        return f"{model} has no {sorted(unknown)}"
    if missing := {name for name, (_, needed) in fields.items() if needed} - value.keys():
        return f"{model} lacks {sorted(missing)}"
    for name, item in value.items():
        if why := _unlike(fields[name][0], item):
            return f"{model}.{name}: {why}"
        if name in FORMS and model == "ProvisionedAlertRule" and not FORMS[name].fullmatch(item):
            return f"{model}.{name}: {item!r}"
    return None


def _unlike(kind: Any, item: Any) -> str | None:
    if isinstance(kind, list):
        found = [misfit(kind[0], one) for one in item] if isinstance(item, list) else [f"{item!r} is no list"]
        return next((why for why in found if why), None)
    if isinstance(kind, str):
        return misfit(kind, item)
    right = isinstance(item, kind) and not (kind is int and isinstance(item, bool))
    return None if right else f"{item!r} is no {kind.__name__}"
