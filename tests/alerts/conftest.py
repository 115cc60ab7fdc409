"""A real SQLite ledger with a leader, a webhook secret, and receivers on free ports."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from aiohttp import web
from alerts_doubles import SECRET, Leader, Receiver

from detectors.witness.ledger import make_ledger
from outrider.config.ledger import LedgerSection


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
