"""What the witness's tests share: a clock in hand, a ledger and a journal in a folder of their own."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from witness_doubles import FLEET, Office

from detectors.witness.journal import Journal
from detectors.witness.ledger_sqlite import SqliteLedger
from detectors.witness.service import Witness
from outrider.clock import ManualClock
from outrider.config.ledger import LedgerSection
from outrider.config.security import write_secret
from outrider.config.site import read_config


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


@pytest.fixture
def witness(tmp_path: Path) -> Witness:
    for name in ("heartbeat", "agent"):
        write_secret(tmp_path / name)
    path = tmp_path / "site.toml"
    path.write_text(f"""
[witness]
state_dir = "{tmp_path}"
[[witness.members]]
name = "w1"
http_port = 1
heartbeat_port = 2
[ledger]
path = "{tmp_path}/ledger.db"
[security]
heartbeat_key_file = "{tmp_path}/heartbeat"
agent_token_file = "{tmp_path}/agent"
""")
    return Witness(read_config(path), "w1")
