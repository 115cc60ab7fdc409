"""A slurmrestd that lies, or is something else: each its own clear state, nothing for ever."""

import contextlib
import json
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from alerts_doubles import row

from alerts import senders
from alerts.schedulers.kube_api import KubeApi
from alerts.schedulers.port import SchedulerError
from alerts.schedulers.sender import SchedulerSender
from alerts.schedulers.slurm import SlurmScheduler
from alerts.schedulers.slurm_api import RestApi
from outrider.config.alerts import SpareCheck
from outrider.config.targets import KubernetesTarget, SlurmTarget

PATHS = json.dumps({"paths": {"/slurm/v0.0.38/nodes": {}, "/slurm/v0.0.40/nodes": {}}})


async def nodes_of(description: str, status: int, answer: str) -> SchedulerError | list:
    async def describe(_: web.Request) -> web.Response:
        return web.Response(text=description)

    async def nodes(_: web.Request) -> web.Response:
        return web.Response(status=status, text=answer, headers={"Location": "http://127.0.0.1:9/"})

    application = web.Application()
    application.router.add_get("/openapi/v3", describe)
    application.router.add_get("/slurm/v0.0.40/nodes", nodes)
    async with TestServer(application) as server:
        api = RestApi(SlurmTarget(name="s", url=str(server.make_url("")), scontrol=""))
        await api.open()
        try:
            return await api.nodes()
        except SchedulerError as error:
            return error
        finally:
            await api.close()


@pytest.mark.parametrize(
    ("description", "status", "answer", "code", "again"),
    [
        ("<html>", 200, "", "strange_answer", True),
        ('{"paths": {"/v2/pets": {}}}', 200, "", "not_supported", False),
        (PATHS, 200, "<html>welcome</html>", "strange_answer", True),
        (PATHS, 200, "{}", "strange_answer", True),
        (PATHS, 200, '{"nodes": 7}', "strange_answer", True),
        (PATHS, 200, '{"nodes": [], "errors": [{"error": "Unable to contact slurm controller"}]}', "unreachable", True),
        (PATHS, 500, '{"nodes": [], "errors": [{"error": "Unspecified error"}]}', "unauthorised", True),
        (PATHS, 401, "Authentication failure", "unauthorised", True),
        (PATHS, 302, "elsewhere", "strange_answer", False),
        (PATHS, 502, "bad gateway", "strange_answer", True),
    ],
)
async def test_each_lie_is_said(description: str, status: int, answer: str, code: str, again: bool) -> None:
    found = await nodes_of(description, status, answer)
    assert isinstance(found, SchedulerError)
    assert (found.code, found.again) == (code, again)


async def test_the_newest_version_that_is_offered_is_spoken() -> None:
    found = await nodes_of(PATHS, 200, '{"nodes": [{"name": "n1", "state": ["IDLE"], "partitions": ["p"]}], "errors": []}')
    assert isinstance(found, list)
    assert [node.name for node in found] == ["n1"]


async def test_token_file_that_is_gone_is_tried_again_and_named(tmp_path: Path) -> None:
    target = SlurmTarget(name="s", url="http://127.0.0.1:9", token_file=str(tmp_path / "gone"))
    sender = SchedulerSender(SlurmScheduler(target, RestApi(target)), (), 3, SpareCheck())
    await sender.open()
    try:
        attempt = await sender.send(row("r", "node.drain.requested", node="n1"), 0.0)
    finally:
        await sender.close()
    assert (attempt.outcome, attempt.reason_code) == ("retry", "unauthorised")
    assert "gone" in attempt.reason


@pytest.mark.parametrize("kind", ["slurm", "kubernetes"])
async def test_an_answer_without_end_fills_no_memory(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(senders, "ANSWER_MAX", 1 << 20)
    sent = 0

    async def endless(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        answer = web.StreamResponse()
        await answer.prepare(request)
        with contextlib.suppress(ConnectionError):
            while True:
                await answer.write(b"x" * 65536)
                sent += 65536
        return answer

    token = tmp_path / "token"
    token.write_text("t")
    token.chmod(0o600)
    application = web.Application()
    application.router.add_get("/{tail:.*}", endless)
    async with TestServer(application) as server:
        url = str(server.make_url(""))
        api = (
            RestApi(SlurmTarget(name="s", url=url, timeout_seconds=60.0))
            if kind == "slurm"
            else KubeApi(KubernetesTarget(name="k", url=url, token_file=str(token), timeout_seconds=60.0))
        )
        await api.open()
        with pytest.raises(SchedulerError, match="larger than 1 MiB") as caught:
            await (api.nodes() if isinstance(api, RestApi) else api.get("/api/v1/nodes"))
        await api.close()
    assert caught.value.again
    assert sent < 64 << 20
