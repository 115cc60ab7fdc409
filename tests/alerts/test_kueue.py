"""Kueue: a job that it admitted is restarted through its Workload, off the bad node; what it evicts by itself is no fault."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import pytest
from aiohttp import web
from kube_fake import Kube

from alerts.bodies import Data, Replace
from alerts.schedulers.kube_api import Expired
from alerts.schedulers.kueue import HELD, state_of
from alerts.schedulers.kueue_watch import KueueWatch
from alerts.schedulers.port import SchedulerError
from outrider.signals import Signal

NODES = ["n1", "n2", "n3", "n9"]
FOLDER = "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads"


def order(fence: int = 5, attempt: int = 1, **more: Any) -> Data:
    replace = (Replace(slot=1, from_="n2", to="n9"),)
    return Data(fence=fence, incident="i1", fault="node.lost", job="j1", attempt=attempt, **({"replace": replace} | more))


@pytest.fixture
def start(start_kube: Callable) -> Callable:
    return partial(start_kube, queue="gpus")


@pytest.mark.parametrize("kind", ["Job", "JobSet", "TrainJob", "PyTorchJob"])
async def test_job_is_held_until_its_pods_are_gone_then_queued_again_and_placed_off_the_bad_node(start, kind: str) -> None:
    kube, _, scheduler = await start(kind)
    kube.dead = {"n2"}  # its kubelet cannot say that a pod is gone
    done = await scheduler.restart(order())
    assert done.status == "done"
    assert "Kueue places it anew" in done.note
    assert kube.kueue.story == [(False, 3), (True, 0)], "inactive with its pods, active when none was left"
    assert kube.placed() == ["n1", "n9", "n3"]
    assert HELD not in kube.kueue.workload["metadata"]["annotations"]
    assert not kube.takes_work("n2"), "cordoned before Kueue places the job anew"
    assert not [path for _, path, _ in kube.requests if path.endswith("/eviction")], "Kueue ends the pods, not we"
    assert (await scheduler.restart(order())).status == "already"
    assert len(kube.kueue.story) == 2


async def test_node_is_cordoned_before_its_workload_is_held(start) -> None:
    kube, _, scheduler = await start()
    await scheduler.restart(order())
    changes = [path for method, path, _ in kube.requests if method == "PATCH"]
    assert changes.index("/api/v1/nodes/n2") < next(place for place, path in enumerate(changes) if "/workloads/" in path)


async def test_crash_while_it_is_held_is_finished_by_a_repeat_that_finds_no_pods(start, monkeypatch) -> None:
    kube, _, scheduler = await start()
    kube.kueue.slow = 10_000
    monkeypatch.setattr("alerts.schedulers.kueue.RELEASE_SECONDS", 0.05)
    with pytest.raises(SchedulerError) as caught:
        await scheduler.restart(order())
    assert (caught.value.code, caught.value.again) == ("busy", True)
    assert kube.pods == {}
    assert kube.kueue.workload["spec"]["active"] is False
    kube.kueue.slow = 0
    assert (await scheduler.restart(order())).status == "done"
    assert kube.placed() == ["n1", "n9", "n3"]


async def test_newer_order_takes_over_what_an_older_one_held(start, monkeypatch) -> None:
    kube, _, scheduler = await start()
    kube.kueue.slow = 10_000
    monkeypatch.setattr("alerts.schedulers.kueue.RELEASE_SECONDS", 0.05)
    with pytest.raises(SchedulerError):
        await scheduler.restart(order())
    kube.kueue.slow = 0
    both = (Replace(slot=1, from_="n2", to="n9"), Replace(slot=2, from_="n3", to=None))
    assert (await scheduler.restart(order(7, attempt=2, replace=both))).status == "done"
    assert not {"n2", "n3"} & set(kube.placed())
    assert (await scheduler.restart(order())).status == "old_fence"


async def test_another_writer_in_between_is_borne(start) -> None:
    kube, _, scheduler = await start()
    kube.conflicts = 3
    assert (await scheduler.restart(order())).status == "done"
    assert kube.kueue.story == [(False, 3), (True, 0)]


async def test_workload_that_a_person_set_inactive_stays_inactive(start) -> None:
    kube, _, scheduler = await start()
    kube.kueue.workload["spec"]["active"] = False
    done = await scheduler.restart(order())
    assert "a person" in done.note
    assert kube.kueue.workload["spec"]["active"] is False
    assert kube.kueue.story == []


async def test_job_that_kueue_has_preempted_is_left_to_kueue(start) -> None:
    kube, _, scheduler = await start()
    kube.evict("Preempted")
    done = await scheduler.restart(order())
    assert done.status == "done"
    assert "Kueue evicted it (Preempted)" in done.note
    assert kube.kueue.story == []


async def test_job_that_waits_for_kueue_without_a_workload_is_tried_again(start) -> None:
    kube, _, scheduler = await start()
    for place in [place for place in kube.owners if place[1].startswith("workloads/")]:
        del kube.owners[place]
    with pytest.raises(SchedulerError) as caught:
        await scheduler.restart(order())
    assert (caught.value.code, caught.value.again) == ("busy", True)
    assert len(kube.pods) == 3


async def test_quota_is_kept_where_only_the_pods_are_to_be_ended(start) -> None:
    kube, _, scheduler = await start(kueue="pods")
    assert (await scheduler.restart(order())).status == "done"
    assert kube.kueue.story == []
    assert kube.placed() == ["n1", "n9", "n3"]


# -- evictions that are Kueue's own ------------------------------------------------------------------------------------------


class Told:
    """Signals as the witnesses got them."""

    def __init__(self) -> None:
        self.signals: list[Signal] = []
        self.reachable = True

    async def __call__(self, signals: list[Signal]) -> bool:
        if self.reachable:
            self.signals += signals
        return self.reachable


@pytest.fixture
async def watch(start) -> AsyncIterator[Callable]:
    opened = []

    async def make(kind: str = "JobSet") -> tuple[Kube, KueueWatch, Told]:
        kube, target, _ = await start(kind)
        told = Told()
        made = KueueWatch(target, told)
        await made._api.open()
        opened.append(made._api.close)
        return kube, made, told

    yield make
    for close in opened:
        await close()


@pytest.mark.parametrize(
    ("reason", "word"),
    [
        ("Preempted", "preempted"), ("ClusterQueueStopped", "requeued"), ("LocalQueueStopped", "requeued"),
        ("AdmissionCheck", "requeued"), ("Deactivated", "cancelled"),
        ("DeactivatedDueToMaximumExecutionTimeExceeded", "time_limit"),
        ("DeactivatedDueToRequeuingLimitExceeded", ""), ("PodsReadyTimeout", ""), ("NodeFailures", ""), ("Novelty", ""),
    ],
)  # fmt: skip
async def test_eviction_that_somebody_wanted_is_told_once_and_one_that_a_fault_may_have_caused_never(watch, reason, word) -> None:
    kube, made, told = await watch()
    await made.once(FOLDER, 1.0)
    assert told.signals == [], "nothing happened"
    kube.evict(reason)
    for _ in range(3):
        await made.once(FOLDER, 1.0)
    assert [(one.kind, one.job, one.data) for one in told.signals] == (
        [("process_exit", "j1", {"attempt": 1, "reason": word})] if word else []
    )


async def test_next_attempt_is_numbered_so_that_what_comes_back_is_judged_anew(watch, start) -> None:
    kube, made, told = await watch()
    kube.evict("Preempted")
    await made.once(FOLDER, 1.0)
    assert kube.maps["outrider-ranks-j1"]["data"]["OUTRIDER_ATTEMPT"] == "2"
    assert kube.top["metadata"]["annotations"]["outrider.dev/attempt"] == "1"
    kube.kueue.set("Requeued", True, "BackoffFinished")
    kube.run_kueue()
    assert kube.placed() == ["n1", "n2", "n3"]
    kube.evict("Preempted")
    await made.once(FOLDER, 1.0)
    assert [one.data["attempt"] for one in told.signals] == [1, 2]
    numbers = [int(one.id.rpartition("/")[2]) for one in told.signals]
    assert numbers == sorted(set(numbers)), "a witness drops what it has seen, and takes what is new"


async def test_witnesses_that_cannot_be_reached_are_told_later_under_the_same_name(watch) -> None:
    kube, made, told = await watch()
    kube.evict("Preempted")
    told.reachable = False
    with pytest.raises(SchedulerError) as caught:
        await made.once(FOLDER, 1.0)
    assert caught.value.again
    assert kube.maps == {}, "nothing is numbered before it is told"
    told.reachable = True
    await made.once(FOLDER, 1.0)
    assert len(told.signals) == 1


async def test_job_whose_pods_do_not_take_their_attempt_from_the_map_is_not_told(watch) -> None:
    kube, made, told = await watch()
    workload = json.loads(json.dumps(kube.kueue.workload).replace("outrider-ranks-j1", "elsewhere"))
    kube.kueue.workload.update(workload)
    kube.evict("Preempted")
    await made.once(FOLDER, 1.0)
    assert told.signals == []


async def test_what_we_hold_ourselves_is_no_eviction_to_tell(watch, start, monkeypatch) -> None:
    kube, made, told = await watch()
    kube.kueue.workload["metadata"].setdefault("annotations", {})[HELD] = "5"
    kube.evict("Deactivated")
    assert state_of(kube.kueue.workload).evicted == "Deactivated"
    await made.once(FOLDER, 1.0)
    assert told.signals == []


@pytest.mark.parametrize("ending", ["410", "410 event", "half a line", ""])
async def test_watch_of_workloads_that_breaks_is_begun_anew_and_misses_nothing(watch, ending: str) -> None:
    kube, made, told = await watch()
    kube.watch_ends = [ending]
    try:
        await made.once(FOLDER, 1.0)
    except Expired:
        assert ending.startswith("410")
    kube.evict("Preempted")
    await made.once(FOLDER, 1.0)
    assert len(told.signals) == 1


STRANGE: dict[str, Any] = {
    "conditions that are none": lambda item: item["status"].update(conditions=[7]),
    "a status that is none": lambda item: item.update(status="x"),
    "no metadata": lambda item: item.pop("metadata"),
    "owners that are none": lambda item: item["metadata"].update(ownerReferences=7),
    "an owner of a kind that nobody serves": lambda item: item["metadata"].update(
        ownerReferences=[{"apiVersion": "batch/v1", "kind": "Novelty", "name": "x", "uid": "u", "controller": True}]
    ),
}


@pytest.mark.parametrize("strange", STRANGE.values(), ids=STRANGE)
async def test_workload_that_makes_no_sense_holds_no_other_up(watch, strange: Callable[[Any], Any]) -> None:
    kube, made, told = await watch()
    kube.evict("Preempted")
    other = json.loads(json.dumps(kube.kueue.workload))
    strange(other)
    place = next(place for place in kube.owners if place[1].startswith("workloads/"))
    kube.owners = {(place[0], "workloads/a-strange-one"): other, **kube.owners}
    await made.once(FOLDER, 1.0)
    assert len(told.signals) == 1


async def test_watch_outlives_answers_of_any_shape(watch, monkeypatch) -> None:
    _, made, _ = await watch()
    naps: list[float] = []
    answers = iter([KeyError("metadata"), TypeError("x"), SchedulerError("429", "busy", again=True, wait=40.0)])

    async def once(_: str, __: float) -> None:
        raise next(answers)

    async def sleep(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 3:
            raise asyncio.CancelledError

    monkeypatch.setattr(made, "once", once)
    monkeypatch.setattr("alerts.schedulers.kueue_watch.asyncio.sleep", sleep)
    with pytest.raises(asyncio.CancelledError):
        await made._forever("default")
    assert naps == [15.0, 15.0, 40.0], "as long as the server asks, where it does"


@pytest.mark.parametrize("event", ["[]", "{}", '{"type": "ERROR", "object": "x"}', '{"type": "ERROR"}', "[" * 3000, "7"])
async def test_event_that_makes_no_sense_ends_the_watch_and_nothing_else(watch, monkeypatch, event: str) -> None:
    kube, made, told = await watch()

    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=event + "\n")

    monkeypatch.setattr(kube, "_watch", answer)
    kube.evict("Preempted")
    await made.once(FOLDER, 1.0)
    assert len(told.signals) == 1
