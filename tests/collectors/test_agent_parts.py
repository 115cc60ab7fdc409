"""The agent's pure parts: pages to signals, which orders are obeyed, what a probe means, floods, changes, counters, slots."""

import math
import os
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.agent.exits import exit_code, open_process, process_born
from collectors.agent.metrics import MetricsPage, family
from collectors.agent.once import look_once
from collectors.agent.orders import OrderGate
from collectors.agent.pages import PageTeller
from collectors.agent.probe import judge
from collectors.agent.slots import Rank, Slot, SlotTable
from collectors.frame.board import Begun, Board, make_board
from collectors.frame.changes import Changes, Counters
from collectors.frame.flood import FloodGate
from collectors.frame.found import Found
from collectors.frame.identity import normal_pci
from collectors.frame.nursery import fork_nursery
from collectors.frame.types import Place
from outrider.config.collectors import CollectorsSection
from outrider.sdk.cells import SideCell, TrainerCell
from outrider.signals import Signal
from outrider.wire import Order


def teller(step_seconds: float = 0.5) -> PageTeller:
    return PageTeller({"node": "n1", "job": "j", "rank": 2}, {"attempt": 3, "slot": 2}, step_seconds)


def cell(step: int, *, phase: str = "train", now: float = 10.0, progress: int = 1, **figures: float) -> TrainerCell:
    end = int(now * 1e9)
    return TrainerCell(
        step=step,
        begin_ns=end - 2 * 10**9,
        end_ns=end,
        phase=phase,
        phase_ns=1,
        progress=progress,
        **figures,  # type: ignore[arg-type]
    )


def kinds(signals: list[Signal]) -> list[tuple[str, object]]:
    return [(signal.kind, signal.value) for signal in signals]


def test_a_page_that_nobody_wrote_says_nothing() -> None:
    assert teller().tell(TrainerCell(), SideCell(), 10.0) == []
    assert teller().tell(None, None, 10.0) == []


def test_a_step_is_told_once_with_its_times_and_only_what_is_known() -> None:
    one = teller()
    told = one.tell(cell(5, loss=2.5, grad_norm=math.nan), SideCell(), 11.0)
    assert kinds(told) == [("step", 5), ("phase", "train")]
    assert told[0].data == {"attempt": 3, "slot": 2, "step_s": 2.0, "age_s": 1.0, "progress": 1, "loss": 2.5}
    assert (told[0].node, told[0].job, told[0].rank, told[0].source) == ("n1", "j", 2, "page")
    assert one.tell(cell(5), SideCell(), 12.0) == []


def test_a_loss_that_is_not_finite_is_told() -> None:
    (step, _) = teller().tell(cell(5, loss=math.inf), SideCell(), 11.0)
    assert step.data["loss"] == math.inf


def test_fast_steps_are_told_at_the_pace_and_the_last_one_is_not_lost() -> None:
    one = teller(step_seconds=1.0)
    heard = []
    for tick in range(40):  # a step each 0.1 s, a look each 0.1 s
        heard += [
            value for kind, value in kinds(one.tell(cell(min(tick, 25), progress=tick), SideCell(), tick / 10)) if kind == "step"
        ]
    assert heard == [0, 9, 19, 25]  # one a second; a look that comes a little early will do
    assert not one.waiting


def test_a_phase_and_a_stall_are_told_when_they_change() -> None:
    one = teller()
    one.tell(cell(5), SideCell(), 10.0)
    assert kinds(one.tell(cell(5, phase="checkpoint", progress=2), SideCell(), 11.0)) == [("phase", "checkpoint")]
    (stalled,) = one.tell(cell(5, phase="checkpoint", progress=2), SideCell(situation="stalled", labels=(5, -1)), 12.0)
    assert (stalled.data["situation"], stalled.data["copies"]) == ("stalled", [5])


def test_progress_within_a_phase_is_told_each_second() -> None:
    one = teller()
    one.tell(cell(5, phase="eval"), SideCell(), 10.0)
    moved = [one.tell(cell(5, phase="eval", progress=n), SideCell(), 10.0 + n / 10) for n in range(2, 22)]
    assert sum(len(signals) for signals in moved) == 2


@settings(deadline=None)
@given(steps=st.lists(st.integers(-1, 50), max_size=30))
def test_told_steps_only_grow(steps: list[int]) -> None:
    one, heard = teller(0.0), []
    for now, step in enumerate(steps):
        heard += [value for kind, value in kinds(one.tell(cell(step, progress=now), SideCell(), float(now))) if kind == "step"]
    assert heard == sorted(set(heard)) and set(heard) <= set(steps)


def order(name: str, fence: int = 0, job: str | None = "j") -> Order:
    return Order(number=1, id=name, order="publish", job=job, fence=fence)


def test_an_order_is_obeyed_once_also_after_a_restart(tmp_path: Path) -> None:
    gate = OrderGate(tmp_path / "orders")
    assert gate.admit(order("a", 5)) and not gate.admit(order("a", 5))
    again = OrderGate(tmp_path / "orders")
    assert not again.admit(order("a", 5)) and not again.admit(order("b", 4)) and again.admit(order("c", 5))
    assert (again.repeated, again.stale) == (1, 1)


def test_fences_of_other_jobs_do_not_matter_and_no_fence_is_always_fresh(tmp_path: Path) -> None:
    gate = OrderGate(tmp_path / "orders")
    assert gate.admit(order("a", 9, "j1"))
    assert gate.admit(order("b", 3, "j2"))
    assert gate.admit(order("c", 0, "j1"))


@settings(deadline=None)
@given(fences=st.lists(st.integers(1, 9), max_size=20))
def test_obeyed_fences_never_go_back(fences: list[int], tmp_path_factory: pytest.TempPathFactory) -> None:
    gate = OrderGate(tmp_path_factory.mktemp("gate") / "orders")
    obeyed = [fence for number, fence in enumerate(fences) if gate.admit(order(str(number), fence))]
    assert obeyed == sorted(obeyed)


def test_a_memory_of_junk_or_a_folder_that_is_full_stops_no_order(tmp_path: Path) -> None:
    (tmp_path / "orders").write_bytes(b"\x00junk")
    assert OrderGate(tmp_path / "orders").admit(order("a"))
    nowhere = OrderGate(tmp_path / "gone/orders")
    assert nowhere.admit(order("a")) and nowhere.unsaved == 1


@pytest.mark.parametrize(
    ("agent", "closed", "answer"),
    [
        ("reply", "silent", "reply"),
        ("reply", "refused", "reply"),
        ("silent", "refused", "mute"),
        ("refused", "refused", "refused"),
        ("refused", "silent", "refused"),
        ("silent", "silent", "none"),
    ],
)
def test_what_two_ports_say_together(agent: str, closed: str, answer: str) -> None:
    assert judge(agent, closed) == answer


@settings(deadline=None)
@given(gaps=st.lists(st.floats(0.0, 30.0), max_size=200))
def test_a_flood_gate_loses_count_of_nothing(gaps: list[float]) -> None:
    gate, now, passed, told = FloodGate(burst=3, seconds_each=10.0), 0.0, 0, 0
    for gap in gaps:
        now += gap
        passed += gate.admit("k", Signal(t=now, kind="xid", value=31), now)
        told += sum(signal.data["count"] for signal in gate.due(now))
    told += sum(signal.data["count"] for signal in gate.due(now + 100.0))
    assert passed + told == len(gaps)
    assert passed <= 3 + now / 10.0 + 1


def test_changes_are_told_once_and_again_after_a_while() -> None:
    changes = Changes(refresh_seconds=100.0)
    assert [changes.due("a", value, now) for value, now in ((1, 0.0), (1, 1.0), (2, 2.0), (2, 101.0), (2, 102.5))] == [
        True, False, True, False, True,
    ]  # fmt: skip
    changes.forget_others(set())
    assert changes.due("a", 2, 103.0)


def test_a_counter_that_goes_back_was_reset() -> None:
    counters = Counters()
    assert [counters.grown("a", value) for value in (10, 15, 3, 4)] == [0, 5, 3, 1]
    assert counters.resets == 1


@pytest.mark.parametrize(
    ("form", "normal"),
    [
        ("00000000:3B:00.0", "0000:3b:00"),
        ("0000:3b:00", "0000:3b:00"),
        ("0001:af:00.0", "0001:af:00"),
        ("junk", "junk"),
        ("x:y:z", "x:y:z"),
    ],
)
def test_bus_addresses_have_one_form(form: str, normal: str) -> None:
    assert normal_pci(form) == normal


def test_a_board_shows_the_call_that_goes_on() -> None:
    descriptor = make_board()
    child, agent = Board(descriptor), Board(descriptor)
    os.close(descriptor)
    assert agent.read() is None
    begun = Begun(collector="nvml", call="x" * 50, now=1.5, subject={"gpu": 3})
    child.write(begun)
    assert agent.read() == begun
    child.write(None)
    assert agent.read() is None
    child.write(replace_subject(begun, "y" * 5000))
    assert agent.read() is None
    child.close()
    agent.close()


def replace_subject(begun: Begun, text: str) -> Begun:
    return msgspec.structs.replace(begun, subject={"mount": text})


def rank(**fields: object) -> Rank:
    values = {
        "job": "j",
        "slot": 0,
        "rank": 0,
        "attempt": 1,
        "copy_bytes": 1000,
        "pid": os.getpid(),
        "uid": os.getuid(),
        "boot": "b",
    }
    return Rank(**(values | {"gid": os.getgid(), "born": process_born(os.getpid())} | fields))  # type: ignore[arg-type]


class Welcome:
    """What a table answered."""

    def __init__(self, table: SlotTable, one: Rank) -> None:
        self.slot: Slot | None = None
        self.why = ""

        def done(slot: Slot | None, why: str) -> None:
            self.slot, self.why = slot, why

        table.welcome(one, done)


def test_a_slot_is_found_again_and_a_newer_attempt_gets_fresh_memory(tmp_path: Path) -> None:
    table = SlotTable(tmp_path, "b")
    first = Welcome(table, rank()).slot
    assert first is not None and Welcome(table, rank()).slot is first
    newer = Welcome(table, rank(attempt=2)).slot
    assert newer is not None and newer is not first and len(table) == 1
    assert not first.progress.exists() and newer.copy.stat().st_blocks * 512 >= 2000
    late = Welcome(table, rank(attempt=1))
    assert late.slot is None and "attempt 2 holds slot 0" in late.why
    newer.remove()


def test_no_room_is_told_before_anybody_writes(tmp_path: Path) -> None:
    answer = Welcome(SlotTable(tmp_path, "b"), rank(copy_bytes=1 << 60))
    assert answer.slot is None and "no room" in answer.why


def test_too_many_slots_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collectors.agent.slots.SLOTS_MAX", 1)
    table = SlotTable(tmp_path, "b")
    assert Welcome(table, rank()).slot is not None
    assert "slots are in use" in Welcome(table, rank(slot=1)).why
    for slot in table:
        slot.remove()


def test_another_boots_memory_and_junk_are_swept_away(tmp_path: Path) -> None:
    old = SlotTable(tmp_path, "b")
    kept = Welcome(old, rank()).slot
    assert kept is not None
    stale = Slot(tmp_path, rank(slot=1, boot="other"))
    stale.make()
    stale._memory = None
    (tmp_path / "junk.json").write_text("{")
    (tmp_path / "stray").write_text("x")
    (adopted,) = SlotTable(tmp_path, "b").adopt()
    assert adopted.rank == kept.rank
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".copy", ".json", ".progress"]
    kept.remove()


def test_an_order_reaches_those_it_is_for(tmp_path: Path) -> None:
    table = SlotTable(tmp_path, "b")
    for slot, fence in ((0, 0), (1, 4), (2, 9)):
        Welcome(table, rank(slot=slot, rank=slot, attempt=2, fence=fence))

    def ranks(*arguments: object) -> list[int]:
        return [slot.rank.rank for slot in table.chosen(*arguments)]  # type: ignore[arg-type]

    assert ranks("j", (), None, 0) == [0, 1, 2]
    assert ranks("j", (1,), None, 0) == [1]
    assert ranks("other", (), None, 0) == []
    assert ranks(None, (), None, 5) == [0, 1]  # started under fence 9: an order of fence 5 is about an older attempt
    assert ranks("j", (), 1, 0) == []
    for slot in table:
        slot.remove()


@pytest.mark.real
@pytest.mark.parametrize("code", [0, 3, -9])
def test_the_kernel_tells_an_exit_code_while_the_process_is_a_zombie(code: int) -> None:
    pid = os.fork()
    if pid == 0:
        os.kill(os.getpid(), 9) if code < 0 else os._exit(code)
    descriptor = open_process(pid, 0)
    assert descriptor is not None
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    found = exit_code(descriptor, pid, process_born(pid))
    os.waitpid(pid, 0)
    os.close(descriptor)
    assert found == code
    assert process_born(pid) == 0 and open_process(pid, 1) is None


def test_a_page_joins_families_and_loses_only_what_makes_no_sense() -> None:
    page_ = MetricsPage(0.0)
    page_.sources += [
        lambda: [
            family("outrider_gpus", [({"node": "n1"}, 8.0)]),
            family("outrider_agent_commands_total", [({"node": "n1"}, 2.0)]),
        ],
        lambda: [family("outrider_gpus", [({"node": "n2"}, 4.0)]), family("outrider_host_load", [({"node": 5}, "x")])],  # type: ignore[list-item,dict-item]
        lambda: 1 / 0,  # type: ignore[arg-type,return-value]
    ]
    first = page_.render().decode()
    assert 'outrider_gpus{node="n1"} 8.0\noutrider_gpus{node="n2"} 4.0\n' in first
    assert first.count("# TYPE outrider_gpus gauge") == 1
    assert 'outrider_agent_commands_total{node="n1"} 2.0' in first and "outrider_host_load" not in first
    assert page_.failures == 2
    assert page_.render().decode() == first


def test_a_look_once_is_not_spoilt_by_a_child_that_still_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the sweeping of a folder's files and of the folder itself a child that is ending may leave one more."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    real, left = os.rmdir, []

    def rmdir(path: Any, **more: Any) -> None:
        if "outrider-once" in str(path) and not left:
            left.append(path)
            raise OSError(39, "Directory not empty")
        real(path, **more)

    monkeypatch.setattr(os, "rmdir", rmdir)
    nursery = fork_nursery()
    place = Place(node="n1", boot="", state_dir="", section=CollectorsSection())
    assert look_once(Found(off=["host"]), nursery, place)[0]["state"] == "off"
    assert left and list(tmp_path.iterdir()) == []
