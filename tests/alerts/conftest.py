"""A real SQLite ledger with a leader, a webhook secret, receivers on free ports, and Kubernetes API servers."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from alerts_doubles import SECRET, Leader, Receiver

from alerts.schedulers.kubernetes import KubernetesScheduler
from detectors.witness.ledger import make_ledger
from outrider.config.ledger import LedgerSection
from outrider.config.targets import KubernetesTarget


@pytest.fixture
def ledger_section(tmp_path: Path) -> LedgerSection:
    """Leases of two seconds: a machine that is busy with other things may well stop a test for half a second."""
    return LedgerSection(path=str(tmp_path / "ledger.db"), lease_seconds=2.0)


@pytest.fixture
async def leader(request: pytest.FixtureRequest, ledger_section: LedgerSection) -> AsyncIterator[Leader]:
    """On SQLite; on etcd where a test asks for it (`indirect`)."""
    section = ledger_section
    if getattr(request, "param", "sqlite") == "etcd":
        prefix = f"/{Path(section.path).parent.name}/"
        section = LedgerSection(backend="etcd", endpoints=(request.getfixturevalue("etcd"),), prefix=prefix, lease_seconds=2.0)
    ledger = make_ledger(section)
    await ledger.open()
    yield Leader(ledger, section)
    await ledger.close()


@pytest.fixture
def secret_file(tmp_path: Path) -> str:
    path = tmp_path / "webhook.key"
    path.write_text(SECRET)
    return str(path)


@pytest.fixture
async def serve() -> AsyncIterator[Callable[..., object]]:
    """Starts receivers on free ports of loopback."""
    runners: list[web.AppRunner] = []

    async def start(*answers: object) -> Receiver:
        receiver = Receiver(*answers)
        application = web.Application()
        application.router.add_route("*", "/{tail:.*}", receiver.handle)
        runner = web.AppRunner(application, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
        runners.append(runner)
        return receiver

    yield start
    for runner in runners:
        await runner.cleanup()


@pytest.fixture
async def start_kube(tmp_path: Path) -> AsyncIterator[Callable[..., object]]:
    """Starts API servers with job j1 on n1, n2, n3 and the scheduler that speaks to each; all their bodies must have fitted."""
    from kube_fake import TOKEN, Kube  # here, because its models take a second or two that other tests need not wait

    token = tmp_path / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    opened, made = [], []

    async def make(kind: str = "JobSet", queue: str = "", **settings: Any) -> tuple[Kube, KubernetesTarget, KubernetesScheduler]:
        kube = Kube(kind, ["n1", "n2", "n3", "n9"], ["n1", "n2", "n3"], queue=queue)
        server = TestServer(kube.application())
        await server.start_server()
        target = KubernetesTarget(name="k", url=str(server.make_url("")), token_file=str(token), **settings)
        scheduler = KubernetesScheduler(target)
        await scheduler.open()
        made.append(kube)
        opened.extend([scheduler.close, server.close])
        return kube, target, scheduler

    yield make
    for close in opened:
        await close()
    refused = [said for kube in made for said in kube.refused]
    assert not refused, f"bodies that do not fit the published APIs: {refused}"
