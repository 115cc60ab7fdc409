"""What the page asks for: roles, caching, the stream of changes, other witnesses' pages, bad names."""

import asyncio
import http.client
import json
import re
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import quote

import pytest
from console_stage import OPERATOR, VIEWER, Stage, picture

from dashboards.console.feed import QUEUE_MAX, Feed
from outrider.signals import Signal


def get(url: str, token: str | None = VIEWER, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    if token:
        headers["Authorization"] = f"Bearer {token}"
    request = urllib.request.Request(url, headers=headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, dict(answer.headers), answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, dict(error.headers), error.read()


class Stream:
    """One open page, without the page."""

    def __init__(self, url: str, token: str = VIEWER) -> None:
        host = url.removeprefix("http://")
        self.connection = http.client.HTTPConnection(host, timeout=10)
        self.connection.request("GET", "/console/api/stream", headers={"Authorization": f"Bearer {token}"})
        self.answer = self.connection.getresponse()

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *_: object) -> None:
        self.answer.close()
        self.connection.close()

    def next(self) -> Any:
        line = self.answer.readline()
        assert self.answer.readline() == b"\n"
        return json.loads(line.removeprefix(b"data: "))


def test_page_is_asked_for_each_time_and_its_files_never_again(stage: Stage) -> None:
    status, head, body = get(f"{stage.urls[0]}/console/", None)
    assert status == 200 and head["Cache-Control"] == "no-cache" and "script-src 'self'" in head["Content-Security-Policy"]
    assert get(f"{stage.urls[0]}/console/", None, **{"If-None-Match": head["ETag"]})[0] == 304
    names = re.findall(rb'(?:src|href)="(static/[^"]+)"', body)
    assert len(names) > 12
    for name in names:
        status, head, _ = get(f"{stage.urls[0]}/console/{name.decode()}", None)
        assert status == 200 and "immutable" in head["Cache-Control"], name
        assert get(f"{stage.urls[0]}/console/{name.decode()}", None, **{"If-None-Match": head["ETag"]})[0] == 304
    zipped = get(f"{stage.urls[0]}/console/{names[-1].decode()}", None, **{"Accept-Encoding": "gzip"})
    assert zipped[1]["Content-Encoding"] == "gzip" and zipped[2][:2] == b"\x1f\x8b"


@pytest.mark.parametrize("path", ["static/0000000000000000/app.js", "static/x/../../pages.py", "static/x/%2e%2e/%2e%2e/pages.py"])
def test_files_of_another_build_or_place_are_not_to_be_had(stage: Stage, path: str) -> None:
    assert get(f"{stage.urls[0]}/console/{path}", None)[0] == 404


@pytest.mark.parametrize(
    "path", ["stream", "fleet", "faults", "incidents", "jobs", "job?name=llama", "node?name=n00001", "drills", "drill?name=x"]
)
def test_nothing_but_the_empty_page_is_shown_without_a_token(stage: Stage, path: str) -> None:
    assert get(f"{stage.urls[0]}/console/api/{path}", None)[0] == 401
    assert get(f"{stage.urls[0]}/console/api/{path}", "00" * 16)[0] == 401


def test_stream_tells_everything_first_and_then_only_what_changed(stage: Stage) -> None:
    stage.put(picture(1))
    with Stream(stage.urls[0]) as stream:
        first = stream.next()
        assert first["hello"]["role"] == "viewer" and len(first["states"]) == 40 and first["states"][1] == "l"
        assert [one["incident"] for one in first["incidents"]] == [picture(1)["incident"]]
        assert "evidence" not in first["incidents"][0]
        stage.put(picture(2, state="suspected"))
        while not (told := stream.next())["incidents"]:
            pass
        assert [one["state"] for one in told["incidents"]] == ["suspected"] and told["states"] == [[2, "s"]]
    with Stream(stage.urls[1], OPERATOR) as other:
        assert other.next()["hello"]["role"] == "operator"


def test_an_open_incident_stays_however_many_newer_ones_there_are(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dashboards.console.feed.INCIDENTS_MAX", 3)
    stage.put(picture(1))
    stage.put(*[picture(10 + number, state="resolved") for number in range(5)])
    feed = Feed(stage.pages[0], 1)

    async def look() -> tuple[str, set[str]]:
        await feed._look()
        return feed._letters[1], set(feed._incidents)

    letter, known = stage.do(look())
    assert letter == "l" and picture(1)["incident"] in known and len(known) == 4
    stage.put(*[picture(20 + number, state="resolved") for number in range(5)])
    letter, known = stage.do(look())
    assert letter == "l" and picture(1)["incident"] in known and len(known) == 4
    stage.put(picture(1, state="resolved"))
    letter, known = stage.do(look())
    assert letter == "h" and len(known) == 3


def test_pages_that_open_together_cause_one_look_each_second_not_one_each(stage: Stage) -> None:
    feed = Feed(stage.pages[0], 9)

    async def open_all() -> int:
        watching = [feed.watch() for _ in range(8)]
        await asyncio.gather(*(anext(one) for one in watching))
        return sum(task.get_coro().__name__ == "_run" for task in asyncio.all_tasks())  # type: ignore[union-attr]

    assert stage.do(open_all()) == 1


def test_page_that_reads_too_slowly_is_let_go(stage: Stage) -> None:
    feed = Feed(stage.pages[0], 2)

    async def watch() -> int:
        watching = feed.watch()
        await anext(watching)
        (waiting,), looking = feed._watchers, feed._task
        for _ in range(QUEUE_MAX - 1):
            waiting.put_nowait({})
        stage.pages[0].news.set()
        assert looking is not None
        await looking  # nobody is left to look for
        return len([message async for message in watching])

    assert stage.do(watch()) == QUEUE_MAX - 1


def test_one_page_too_many_is_sent_elsewhere(stage: Stage) -> None:
    with Stream(stage.urls[0]) as one, Stream(stage.urls[0]) as two, Stream(stage.urls[0]) as three:
        one.next(), two.next(), three.next()
        status, head, body = get(f"{stage.urls[0]}/console/api/stream")
        assert (status, head["Retry-After"]) == (503, "10") and b"too many pages" in body


def test_another_witness_of_the_site_may_serve_the_page_and_a_stranger_may_not(stage: Stage) -> None:
    url = f"{stage.urls[0]}/v1/incidents"
    assert get(url, method="OPTIONS", token=None, Origin=stage.urls[1])[0] == 204
    assert get(url, Origin=stage.urls[1])[1]["Access-Control-Allow-Origin"] == stage.urls[1]
    port = stage.urls[1].rpartition(":")[2]
    assert get(url, Origin=f"http://localhost:{port}")[1]["Access-Control-Allow-Origin"] == f"http://localhost:{port}"
    for stranger in ("http://evil.example", "null", f"http://127.0.0.1.evil.example:{port}"):
        assert get(url, method="OPTIONS", token=None, Origin=stranger)[0] == 403
        assert "Access-Control-Allow-Origin" not in get(url, Origin=stranger)[1]


def test_job_is_told_whole_and_then_from_where_the_page_stands(stage: Stage) -> None:
    stage.tell(*[Signal(t=1.0, kind="step", job="llama", value=step, data={"loss": 2.0}) for step in range(5)])
    whole = json.loads(get(f"{stage.urls[0]}/console/api/job?name=llama")[2])
    assert [point[1] for point in whole["points"]] == [0, 1, 2, 3, 4] and whole["next"] == 5 and whole["ranks"] == 128
    stage.tell(Signal(t=1.0, kind="step", job="llama", value=5, data={"loss": float("nan")}))
    more = json.loads(get(f"{stage.urls[0]}/console/api/job?name=llama&after={whole['next']}")[2])
    assert [point[1:3] for point in more["points"]] == [[5, None]]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("job?name=no", 404), ("node?name=no", 404), ("job", 404), ("node", 404), ("job?name=llama&after=x", 400),
        ("incidents?limit=0", 400), ("drill?name=../..", 404), ("drill", 404),
    ],
)  # fmt: skip
def test_a_bad_question_is_answered_in_one_line(stage: Stage, path: str, status: int) -> None:
    found, _, body = get(f"{stage.urls[0]}/console/api/{path}")
    assert found == status and list(json.loads(body)) == ["error"]


def test_names_of_any_kind_can_be_asked_for(stage: Stage) -> None:
    name = "<b>a/b?c#d&e</b> 作业"
    stage.tell(Signal(t=1.0, kind="phase", job=name, value="train"))
    assert json.loads(get(f"{stage.urls[0]}/console/api/job?name={quote(name)}")[2])["job"] == name


def test_reports_that_are_none_are_left_out(stage: Stage) -> None:
    reports = stage.folder / "reports"
    for name, text in (("good", '{"about": {}, "faults": [{"fault": "kill", "ok": true}]}'), ("bad", "{"), ("other", "[1]")):
        (reports / name).mkdir(parents=True)
        (reports / name / "report.json").write_text(text)
    (stage.folder / "report.json").write_text('{"faults": []}')
    listed = json.loads(get(f"{stage.urls[0]}/console/api/drills")[2])
    assert [(one["name"], one["right"]) for one in listed] == [("good", 1)]
    assert json.loads(get(f"{stage.urls[0]}/console/api/drill?name=good")[2])["faults"][0]["fault"] == "kill"
