"""The deliverer's page: attempts by target, breakers, rows by state; unknown is not zero."""

import re
import socket

import aiohttp
import pytest
from alerts_doubles import Leader, row

from alerts.metrics import DelivererMetrics
from detectors.witness.ledger import LedgerError
from outrider.config.alerts import AlertsConfig
from outrider.errors import InputError
from outrider.metrics import METRICS


async def test_page_shows_attempts_breakers_and_rows_by_state(leader: Leader) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    metrics = DelivererMetrics()
    metrics.attempt("t1", "accepted", 0.02)
    metrics.breaker("t1", True)
    await leader.put(row("a"), row("b"))
    await leader.ledger.mark_dead("a", "no")
    page = metrics.page(AlertsConfig(metrics_port=port), leader.ledger)
    async with page, aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/metrics") as answer:
        text = await answer.text()
    assert 'outrider_deliveries_total{outcome="accepted",target="t1"} 1.0' in text
    assert 'outrider_target_breaker_open{target="t1"} 1.0' in text
    assert 'outrider_outbox_rows{state="dead"} 1.0' in text
    assert 'outrider_outbox_rows{state="pending"} 1.0' in text
    for name in re.findall(r"^# TYPE (\S+)", text, re.MULTILINE):
        assert name.removesuffix("_created") in METRICS or name.endswith("_created")


@pytest.mark.parametrize(("token", "status"), [("good", 200), ("bad", 401), ("", 401)])
async def test_page_needs_a_viewers_token_where_there_is_one(leader: Leader, token: str, status: int) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    page = DelivererMetrics().page(AlertsConfig(metrics_port=port), leader.ledger, ("good",))
    headers = {"Authorization": f"Bearer {token}"}
    async with page, aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/metrics", headers=headers) as answer:
        assert answer.status == status


async def test_page_for_others_than_this_machine_is_refused_without_a_token(leader: Leader) -> None:
    with pytest.raises(InputError, match="viewer_token_file"):
        async with DelivererMetrics().page(AlertsConfig(metrics_port=9, metrics_address="0.0.0.0"), leader.ledger):
            pass


async def test_ledger_that_cannot_be_asked_has_no_rows_at_all(leader: Leader, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(**_: object) -> None:
        raise LedgerError("gone")

    monkeypatch.setattr(leader.ledger, "list_rows", broken)
    assert b"outrider_outbox_rows{" not in await DelivererMetrics().text(leader.ledger)
