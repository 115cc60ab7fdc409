"""The audit of standing orders: who began one, who gave it anew, who ended it, and why; an order that ran out is nobody's word."""

from typing import Any

import pytest
from witness_doubles import Office

from detectors.witness.ledger import Control

ORDERS = pytest.mark.parametrize(("kind", "key", "begins", "ends"), [
    ("pause", "*", "pause", "resume"), ("maintenance", "n2", "maintenance_on", "maintenance_off"),
])  # fmt: skip


async def give(office: Office, kind: str, key: str, who: str, why: str, seconds: float | None = None) -> None:
    await office.ledger.put_control(Control(kind=kind, key=key, body={"who": who, "reason": why}, seconds_left=seconds))


async def audited(office: Office) -> list[tuple[str, str, str]]:
    entries: list[dict[str, Any]] = await office.ledger.audit()
    return [(entry["who"], entry["what"], entry["why"]) for entry in reversed(entries)]


@ORDERS
async def test_who_ends_an_order_is_named_and_not_who_began_it(office: Office, kind: str, key: str, begins: str, ends: str) -> None:
    await give(office, kind, key, "ann", "a storm")
    await office.turn()
    await give(office, ends, key, "bob", "all is well", 60.0)
    await office.turn()
    assert len(await audited(office)) == 1, "the order still stands: its end is being written"
    await give(office, kind, key, "bob", "all is well", 0)
    await office.turn()
    await office.turn()
    assert await audited(office) == [("ann", begins, "a storm"), ("bob", ends, "all is well")]
    assert await office.ledger.controls() == []


@ORDERS
async def test_an_order_given_anew_is_on_record_with_its_reason(
    office: Office, kind: str, key: str, begins: str, ends: str
) -> None:
    await give(office, kind, key, "ann", "a storm")
    await office.turn()
    await give(office, kind, key, "bob", "the storm goes on")
    await office.turn()
    await office.turn()
    assert await audited(office) == [("ann", begins, "a storm"), ("bob", begins, "the storm goes on")]


@ORDERS
async def test_an_end_and_a_new_order_between_two_looks_are_both_heard(
    office: Office, kind: str, key: str, begins: str, ends: str
) -> None:
    await give(office, kind, key, "ann", "a storm")
    await office.turn()
    await give(office, ends, key, "bob", "well", 60.0)
    await give(office, kind, key, "bob", "well", 0)
    await give(office, kind, key, "ann", "a storm")
    await office.turn()
    assert [what for _, what, _ in await audited(office)] == [begins, ends, begins]


async def test_a_window_of_maintenance_that_runs_out_is_nobodys_word(office: Office) -> None:
    await give(office, "maintenance", "n2", "ann", "a new fan")
    await office.turn()
    await office.ledger.put_control(Control(kind="maintenance", key="n2", body={}, seconds_left=0))  # as the ledger drops it
    await office.turn()
    assert await audited(office) == [("ann", "maintenance_on", "a new fan"), ("council", "maintenance_off", "its time is over")]
