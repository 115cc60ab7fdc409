"""Limits an hour and the history of repeat offenders hold over a change of leader: on one machine over a reboot, on several between
machines whose clocks began at different times. Their times are the ledger's, and the ledger's clock goes on."""

import json
from collections.abc import AsyncIterator, Callable

import pytest

from detectors.core.recovery import Recovery
from detectors.core.safety import DAY, HOUR
from detectors.core.world import World
from detectors.witness import ledger_sqlite_schema
from detectors.witness.ledger import Commit, Ledger, make_ledger
from outrider.config.ledger import LedgerSection
from outrider.config.policy import Policy
from outrider.fleet import Fleet, Job, Node

FLEET = Fleet(
    nodes=tuple(Node(node=f"n{number}", rack=f"r{number % 2}") for number in range(8)),
    jobs=(Job(job="j1", slots=(("n0", 0), ("n1", 0))),), spares=("n7",),
)  # fmt: skip
LIMITS = Policy(
    mode="act", cluster_actions_per_hour=2, rack_actions_per_hour=1, job_restarts_max=1, job_window_seconds=HOUR, lemon_count=2,
    lemon_days=30,
)  # fmt: skip
#: How long the first machine had been up, seconds: longer than any machine that runs this test.
UP = 50 * DAY


@pytest.fixture(params=["sqlite", pytest.param("etcd", marks=pytest.mark.real)])
async def open_ledger(request, ledger_section, monkeypatch) -> AsyncIterator[Callable]:
    """Opens the site's ledger once more, as the next leader does: after a reboot, or on a machine that was up for another time."""
    section, opened = ledger_section, []
    if request.param == "etcd":
        section = LedgerSection(backend="etcd", endpoints=(request.getfixturevalue("etcd"),), prefix="/leaders/", lease_seconds=2.0)

    async def make() -> Ledger:
        monkeypatch.setattr(ledger_sqlite_schema, "boot_id", lambda: f"boot-{len(opened)}")
        ledger = make_ledger(section)
        await ledger.open()
        opened.append(ledger)
        return ledger

    yield make
    await opened[-1].close()


async def keep(ledger: Ledger, holder: str, memory: Recovery) -> None:
    """Writes what a leader remembers, as each of its commits does, and gives the lease back."""
    await ledger.acquire("leader", holder)
    lease = await ledger.acquire("leader", holder)  # a renewal: the ledger's time is kept with it
    assert lease is not None
    fence = (await ledger.leader_state()).fence
    council = json.dumps(memory.snapshot()).encode()
    await ledger.commit(Commit(term=lease.term, fence_before=fence, fence=fence, council=council), holder)
    await ledger.resign("leader", holder)


async def leading(ledger: Ledger) -> Recovery:
    state = await ledger.leader_state()
    recovery = Recovery(FLEET, LIMITS, World(FLEET), state.fence)
    if state.council is not None:
        recovery.restore(json.loads(state.council))
    return recovery


def refused(recovery: Recovery, now: float, *, job: str = "j2", node: str = "n4") -> str:
    return recovery.guard.refuses("restart", incident="i", fault="node.lost", jobs=[job], nodes=[node], now=now) or ""


async def test_limits_and_offenders_keep_their_age_over_a_change_of_leader(open_ledger) -> None:
    first = await open_ledger()
    first.clock.offset += UP
    recovery, began = await leading(first), first.clock.monotonic()
    recovery.guard.count(["j1"], ["n1"], began - 600.0)
    recovery.guard.count(["j3"], ["n2"], began - 300.0)
    for days in (29, 1):
        recovery.safety.offenders.note("n1", began - days * DAY)
    recovery.safety.offenders.note("n2", began - DAY)
    await keep(first, "w1", recovery)
    await first.close()

    second = await open_ledger()
    recovery, now = await leading(second), second.clock.monotonic()
    assert now == pytest.approx(began, abs=60.0), "the ledger's clock goes on where it stood"
    assert "actions in the cluster within an hour" in refused(recovery, now + 60.0)
    assert "j1 was restarted" in refused(recovery, now + 60.0, job="j1")
    later = await leading(second)  # one that may forget: what is asked about later hours drops the older ones
    half = began - 450.0 + HOUR  # the first action is older than an hour, the second is not
    assert refused(later, half, node="n3") == "", "n1's rack has had its hour"
    assert "rack r0" in refused(later, half, node="n4")
    assert refused(later, began - 300.0 + HOUR + 60.0) == "", "an hour later all is over"
    assert recovery.safety.unfit(now + 60.0) == {"n1"}
    assert recovery.safety.unfit(now + 2 * DAY) == set(), "what is older than the window is forgotten, not sooner"
    await keep(second, "w2", recovery)
    await second.close()

    third = await open_ledger()
    recovery = await leading(third)
    assert "actions in the cluster within an hour" in refused(recovery, third.clock.monotonic() + 60.0)
    assert recovery.safety.unfit(third.clock.monotonic()) == {"n1"}
