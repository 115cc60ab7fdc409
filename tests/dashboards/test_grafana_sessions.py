"""Pushes against sessions with Grafana that are kept as a file: each call in its order, each answer in the form that servers give.

The answers are in the forms that Grafana 10 to 13 are documented and reported to give; all but those of older servers are held
against the published OpenAPI.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from grafana_fake import TOKEN, answering
from grafana_openapi import misfit, route_of

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-grafana" / "bin" / "python"
SCENES = json.loads(Path(__file__).with_name("grafana_sessions.json").read_text())
BY_NAME = pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene["name"])
#: One dashboard and one group of one rule.
RUN = """
import json, sys
from dashboards.grafana.push import push
from outrider.errors import OutriderError
query = {"refId": "A", "datasourceUid": "p", "relativeTimeRange": {"from": 300, "to": 0}, "model": {"expr": "up", "instant": True}}
rule = {"uid": "r", "title": "R", "condition": "B", "data": [query], "noDataState": "OK", "execErrState": "Error", "for": "1m",
        "labels": {"a": "b"}, "annotations": {"summary": "s"}, "isPaused": False,
        "folderUID": "outrider", "ruleGroup": "g", "orgID": 1}
group = {"title": "g", "folderUid": "outrider", "interval": 60, "rules": [rule]}
try:
    print(json.dumps([one.outcome for one in push(sys.argv[1], sys.argv[2], [{"uid": "outrider-x", "title": "X"}], [group])]))
except OutriderError as error:
    sys.exit(str(error))
"""


@pytest.mark.real
@pytest.mark.skipif(not PYTHON.exists(), reason="the client's environment is not there: `make grafana` makes it")
@BY_NAME
def test_a_push_goes_as_the_session_went(scene: dict[str, Any]) -> None:
    calls, wrong = iter(scene["calls"]), list[str]()

    def answer(method: str, path: str, body: Any, headers: Any) -> tuple[int, Any]:
        call = next(calls, None)
        if call is None or (call["method"], call["path"]) != (method, path) or headers["Authorization"] != f"Bearer {TOKEN}":
            wrong.append(f"{method} {path} where the session has {call}")
            return 500, {"message": "not in the session"}
        if body is not None:
            wrong.extend(filter(None, [misfit((route_of(method, path) or ("",))[0], body)]))
            wrong.extend(f"{name} is {body.get(name)!r}" for name, value in call.get("sent", {}).items() if body.get(name) != value)
        return call["status"], call["answer"]

    with answering(answer) as url:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [PYTHON, "-c", RUN, url, TOKEN]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)
    assert not wrong
    assert next(calls, None) is None, done.stderr
    if "outcomes" in scene:
        assert json.loads(done.stdout) == scene["outcomes"], done.stderr
    else:
        assert scene["error"] in done.stderr and TOKEN not in done.stderr and len(done.stderr.splitlines()) == 1


@BY_NAME
def test_the_answers_of_the_sessions_fit_the_published_openapi(scene: dict[str, Any]) -> None:
    for call in scene["calls"]:
        answer = call["answer"]
        _, models = route_of(call["method"], call["path"]) or ("", {})
        if isinstance(answer, list) or (call["path"] == "/api/folders" and call["status"] == 412):
            continue  # the versions as Grafana 10 gave them; a refusal that the OpenAPI does not list for folders
        answer = json.loads(
            json.dumps(answer), object_hook=lambda one: {key: value for key, value in one.items() if value is not None}
        )
        assert misfit(models[call["status"]], answer) is None
