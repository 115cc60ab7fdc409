"""The frame: a collector that hangs, fails, crashes or lies harms nobody else, and its state is told as it is."""

import threading
import time
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import frame_samples
import pytest

from collectors.agent.loop import Loop
from collectors.frame import found as found_module
from collectors.frame.found import Found, find_collectors
from collectors.frame.nursery import fork_nursery
from collectors.frame.supervisor import Supervisor
from collectors.frame.types import Collector, Place
from outrider.config.collectors import CollectorsSection
from outrider.errors import InputError
from outrider.signals import Signal

pytestmark = pytest.mark.real


class Bench:
    """A supervisor in a loop of its own thread."""

    def __init__(self, folder: Path, kinds: list[type[Collector]]) -> None:
        self.mood = folder / "mood"
        self.signals: list[Signal] = []
        self.failures: list[BaseException] = []
        nursery = fork_nursery()
        self.loop = Loop(self.failures.append)
        place = Place(node="n1", boot="b", state_dir=str(folder), section=CollectorsSection())
        self.supervisor = Supervisor(
            self.loop,
            nursery,
            Found(
                kinds={kind.name: kind for kind in kinds},
                targets={kind.name: f"frame_samples:{kind.__name__}" for kind in kinds},
                broken={"unloadable": "cannot be loaded: ImportError"},
            ),
            place,
            self.signals.append,
        )
        self.supervisor.begin()
        self._thread = threading.Thread(target=self.loop.run)
        self._thread.start()

    def set(self, mood: str) -> None:
        temporary = self.mood.with_suffix(".new")
        temporary.write_text(mood)
        temporary.replace(self.mood)

    def wait(self, condition: Callable[[], object], seconds: float = 20.0) -> None:
        until = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < until, (self.supervisor.states, self.failures)
            time.sleep(0.01)

    def calls(self) -> list[Signal]:
        return [signal for signal in list(self.signals) if signal.kind == "driver_call"]

    def page(self) -> dict[str, list[tuple[dict[str, str], float]]]:
        return {family.name: family.samples for family in self.supervisor.families()}

    def close(self) -> None:
        if self._thread.is_alive():
            self.stop()
        assert not self.failures

    def stop(self) -> None:
        self.loop.stop()
        self._thread.join(5)
        self.supervisor.close()
        self.loop.close()


@pytest.fixture
def make_bench(tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    benches: list[Bench] = []

    def make(*kinds: type[Collector]) -> Bench:
        benches.append(Bench(tmp_path, list(kinds)))
        return benches[-1]

    yield make
    for bench in benches:
        bench.set("")
        bench.close()


def test_readings_become_signals_and_series(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(frame_samples.Steady)
    bench.wait(lambda: len(bench.signals) >= 3)
    assert bench.signals[0].kind == "gpu_count" and bench.signals[0].source == "steady"
    page = bench.page()
    assert page["outrider_gpus"] == [({"node": "n1"}, 8.0)]
    assert page["outrider_collector_success"][0][1] == 1.0


@pytest.mark.parametrize(
    ("mood", "success", "reason"),
    [
        ("error", False, "Input/output error"),
        ("bug", False, "ZeroDivisionError"),
        ("none", True, "nothing today"),
        ("absent", None, "no such device"),
    ],
)
def test_unknown_off_and_broken_are_never_shown_as_healthy(
    make_bench: Callable[..., Bench], mood: str, success: bool | None, reason: str
) -> None:
    bench = make_bench(frame_samples.Moody)
    if mood != "absent":
        bench.wait(lambda: bench.supervisor.states["moody"].success)
    else:
        bench.set(mood)
    bench.set(mood)
    state = bench.supervisor.states["moody"]
    bench.wait(lambda: reason in state.reason)
    assert state.success is success
    assert "outrider_gpus" not in bench.page()
    bench.set("")
    if mood != "absent":
        bench.wait(lambda: state.success and not state.reason)
        assert bench.page()["outrider_gpus"][0][1] == 2.0


def test_a_series_that_no_table_names_is_left_out(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(frame_samples.Moody)
    bench.set("strange")
    bench.wait(lambda: bench.page().get("outrider_gpus", [({}, 0.0)])[0][1] == 1.0)
    assert "outrider_no_such_metric" not in bench.page()


def test_a_call_that_does_not_return_is_told_and_its_series_leave_and_others_go_on(
    make_bench: Callable[..., Bench],
) -> None:
    bench = make_bench(frame_samples.Moody, frame_samples.Steady)
    bench.wait(lambda: bench.supervisor.states["moody"].success)
    bench.set("stuck")
    bench.wait(bench.calls)
    call = bench.calls()[0]
    assert (call.gpu, call.data["call"], call.data["returned"]) == (3, "nvmlDeviceGetTemperature", False)
    assert 0.3 <= float(call.value) < 3.0
    assert bench.supervisor.states["moody"].success is False
    assert [value for _, value in bench.page()["outrider_gpus"]] == [8.0]
    before = len(bench.signals)
    bench.wait(lambda: len(bench.signals) > before + 3)
    bench.set("")
    bench.wait(lambda: len(bench.calls()) == 2)
    assert bench.calls()[1].data["returned"] is True
    bench.wait(lambda: bench.supervisor.states["moody"].success)
    assert bench.supervisor.restarts == 0  # never killed in the middle of a call


def test_a_new_agent_sends_no_second_child_after_one_that_hangs(make_bench: Callable[..., Bench]) -> None:
    first = make_bench(frame_samples.Moody)
    first.wait(lambda: first.supervisor.states["moody"].success)
    first.set("stuck")
    first.wait(first.calls)
    first.stop()
    second = make_bench(frame_samples.Moody)
    second.wait(second.calls)
    call = second.calls()[0]
    assert (call.gpu, call.data["returned"]) == (3, False)
    assert second.supervisor.restarts == 0 and all(child.pid == 0 for child in second.supervisor._children)
    second.set("")
    second.wait(lambda: len(second.calls()) >= 2 and second.calls()[-1].data["returned"])
    second.wait(lambda: second.supervisor.states["moody"].success)


def test_a_child_that_may_be_killed_is_replaced_when_it_is_stuck(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(frame_samples.Killable)
    bench.wait(lambda: bench.supervisor.states["killable"].success)
    bench.set("stuck")
    bench.wait(lambda: bench.supervisor.states["killable"].reason.endswith("ended with -9") or bench.supervisor.restarts)
    bench.set("")
    bench.wait(lambda: bench.supervisor.restarts and bench.supervisor.states["killable"].success)


def test_a_collector_that_cannot_be_loaded_is_told_and_stops_nobody(
    make_bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    points = [
        EntryPoint("gone", "collectors.no_such_module:X", "outrider.collectors"),
        EntryPoint("host", "collectors.host:Host", "outrider.collectors"),
    ]
    monkeypatch.setattr(found_module, "entry_points", lambda group: points)
    found = find_collectors({})
    assert list(found.kinds) == ["host"] and "no_such_module" in found.broken["gone"]
    bench = make_bench(frame_samples.Steady)
    bench.wait(lambda: bench.supervisor.states["steady"].success)
    success = {labels["collector"]: value for labels, value in bench.page()["outrider_collector_success"]}
    assert success == {"steady": 1.0, "unloadable": 0.0}


def test_a_switch_that_names_no_collector_is_a_mistake() -> None:
    with pytest.raises(InputError, match="no collector nvlm"):
        find_collectors({"nvlm": False})


def test_a_child_that_crashes_is_replaced_after_a_pause(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(frame_samples.Moody)
    bench.wait(lambda: bench.supervisor.states["moody"].success)
    bench.set("crash")
    bench.wait(lambda: bench.supervisor.states["moody"].success is False)
    assert bench.supervisor.states["moody"].reason == "its process ended with 7"
    bench.set("")
    bench.wait(lambda: bench.supervisor.states["moody"].success)
    assert bench.supervisor.restarts == 1


def test_what_a_child_said_before_it_hung_is_said_again_after_it(make_bench: Callable[..., Bench]) -> None:
    """The same reading is not sent twice, but the agent has let go of it meanwhile."""
    bench = make_bench(frame_samples.Moody)
    state = bench.supervisor.states["moody"]
    bench.wait(lambda: [sample.value for sample in state.samples] == [2.0])
    bench.set("stuck")
    bench.wait(lambda: state.samples == [] and state.success is False)
    bench.set("")
    bench.wait(lambda: [sample.value for sample in state.samples] == [2.0] and state.success is True)
