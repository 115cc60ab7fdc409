"""What the witness's tests share: a clock in hand, a ledger and a journal in a folder of their own."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from witness_doubles import FLEET, Office

from detectors.witness.journal import Journal
from detectors.witness.ledger_sqlite import SqliteLedger
from outrider.clock import ManualClock
from outrider.config.ledger import LedgerSection


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(100.0)


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[SqliteLedger]:
    made = SqliteLedger(LedgerSection(path=str(tmp_path / "ledger.db")))
    await made.open()
    yield made
    await made.close()


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal", FLEET, "w1", 1 << 20)


@pytest.fixture
async def office(ledger: SqliteLedger, journal: Journal, clock: ManualClock) -> Office:
    made = Office(ledger, journal, clock)
    await made.begin()
    return made
