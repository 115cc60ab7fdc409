"""Kubernetes: every request fits the published OpenAPI and CRDs; conflicts, broken watches, budgets and bad tokens are borne.

The fake server checks each body against the models generated from that OpenAPI (`kube_openapi`) or, for custom kinds, against the
CRD as its project publishes it (`kube_crds`). Kueue has its own tests (`test_kueue`).
"""

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from aiohttp import web
from alerts_doubles import row
from kube_crds import misfit_of_custom, misfit_of_custom_patch
from kube_fake import Kube
from kube_openapi import misfit, misfit_of_eviction, misfit_of_patch
from kube_world import CHAINS, KINDS

from alerts.bodies import Data, Replace
from alerts.schedulers.kube_owners import Owner
from alerts.schedulers.kubernetes import KubernetesScheduler
from alerts.schedulers.port import SchedulerError
from alerts.schedulers.sender import SchedulerSender
from outrider.config.alerts import SpareCheck

NODES = ["n1", "n2", "n3", "n9"]


def order(fence: int = 5, **more: object) -> Data:
    return Data(fence=fence, incident="i1", fault="node.lost", explanation="n2 is silent", **more)


RESTART = order(job="j1", attempt=1, slots=("n1", "n9", "n3"), replace=(Replace(slot=1, from_="n2", to="n9"),))


@pytest.fixture
def start(start_kube: Callable) -> Callable:
    async def make(kind: str = "JobSet") -> tuple[Kube, KubernetesScheduler]:
        kube, _, scheduler = await start_kube(kind)
        return kube, scheduler

    return make


async def test_busy_api_server_says_when_it_wants_to_be_asked_again(start, monkeypatch) -> None:
    kube, scheduler = await start()
    monkeypatch.setattr(
        kube, "_serve", lambda request, body: web.Response(status=429, headers={"Retry-After": "17"}, text="too many requests")
    )
    attempt = await SchedulerSender(scheduler, (), 3, SpareCheck()).send(row("a", "node.drain.requested", node="n2"), 0.0)
    assert (attempt.outcome, attempt.reason_code, attempt.retry_seconds) == ("retry", "busy", 17.0)


@pytest.mark.parametrize("job", ["j1,app!=x", "j1=j1", "", "!j1", "j1 ", "j1\n", "x" * 64])
async def test_job_whose_name_is_no_labels_value_has_no_pods(start, job: str) -> None:
    kube, scheduler = await start()
    with pytest.raises(SchedulerError) as caught:
        await scheduler.restart(msgspec.structs.replace(RESTART, job=job))
    assert (caught.value.code, len(kube.pods)) == ("no_such_job", 3)


@pytest.mark.parametrize("key", ["outrider.dev/fence", "outrider.dev/attempt"])
async def test_mark_that_a_person_wrote_over_is_named(start, key: str) -> None:
    kube, scheduler = await start()
    kube.top["metadata"].setdefault("annotations", {})[key] = "two"
    with pytest.raises(SchedulerError, match=f"{key} is no number: 'two'"):
        await scheduler.restart(RESTART)
    assert len(kube.pods) == 3


@pytest.mark.parametrize("body", ["[]", "7", "null", '"x"', "[" * 3000, "<html>"])
async def test_answer_that_is_no_object_is_a_strange_one(start, monkeypatch, body: str) -> None:
    kube, scheduler = await start()
    monkeypatch.setattr(kube, "_serve", lambda request, _: web.Response(text=body))
    with pytest.raises(SchedulerError) as caught:
        await scheduler.drain(order(node="n2"))
    assert (caught.value.code, caught.value.again) == ("strange_answer", True)


async def test_list_without_end_is_ended(start, monkeypatch) -> None:
    kube, scheduler = await start()
    monkeypatch.setattr("alerts.schedulers.kube_api.PAGES_MAX", 5)
    monkeypatch.setattr(kube, "_serve", lambda request, _: web.json_response({"items": [], "metadata": {"continue": "on"}}))
    with pytest.raises(SchedulerError, match="no end"):
        await scheduler.nodes()
    assert len(kube.requests) == 5


@pytest.fixture
async def both(start) -> tuple[Kube, KubernetesScheduler]:
    return await start()


async def test_quarantined_node_has_cordon_taint_annotations_and_condition_and_loses_them_on_release(both) -> None:
    kube, scheduler = both
    other = {"key": "site/own", "effect": "NoSchedule"}
    kube.nodes["n2"]["spec"]["taints"] = [other]
    await scheduler.quarantine(order(node="n2"))
    node = kube.nodes["n2"]
    assert node["spec"]["unschedulable"] is True
    assert node["spec"]["taints"] == [other, {"key": "outrider.dev/quarantined", "value": "node.lost", "effect": "NoSchedule"}]
    assert node["metadata"]["annotations"]["outrider.dev/fence"] == "5"
    (condition,) = [one for one in node["status"]["conditions"] if one["type"] == "OutriderHealthy"]
    assert (condition["status"], condition["reason"]) == ("False", "NodeLost")
    await scheduler.release(order(6, node="n2"))
    node = kube.nodes["n2"]
    assert node["spec"] == {"taints": [other]}
    assert node["metadata"]["annotations"] == {}


async def test_node_that_a_person_has_cordoned_before_stays_cordoned_on_release(both) -> None:
    kube, scheduler = both
    kube.nodes["n2"]["spec"]["unschedulable"] = True
    await scheduler.drain(order(node="n2"))
    await scheduler.quarantine(order(6, node="n2"))
    assert "cordoned it" in (await scheduler.release(order(7, node="n2"))).note
    assert kube.nodes["n2"]["spec"] == {"unschedulable": True}
    assert kube.nodes["n2"]["metadata"]["annotations"] == {}
    kube.nodes["n2"]["spec"] = {}
    await scheduler.quarantine(order(8, node="n2"))
    await scheduler.release(order(9, node="n2"))
    assert kube.nodes["n2"]["spec"] == {}


async def test_commands_of_a_volcano_job_with_a_long_name_differ_by_their_fence(start) -> None:
    _, scheduler = await start("VolcanoJob")
    made: list[str] = []

    async def create(path: str, body: dict) -> None:
        made.append(body["metadata"]["name"])

    scheduler._api.create = create
    top = Owner("batch.volcano.sh", "v1alpha1", "Job", "/x", {"metadata": {"name": "a" * 62, "namespace": "x", "uid": "u"}})
    for fence in (5, 6):
        await scheduler._volcano(top, order(fence, job="j1", attempt=1))
    assert len(set(made)) == 2
    assert all(len(name) <= 63 for name in made)


@pytest.mark.parametrize("kind", ["Job", "JobSet", "TrainJob", "PyTorchJob", "VolcanoJob"])
async def test_every_kind_of_job_comes_back_with_the_same_indexes_off_the_lost_node(start, kind: str) -> None:
    kube, scheduler = await start(kind)
    before = {pod["metadata"]["uid"] for pod in kube.pods.values()}
    await scheduler.quarantine(order(node="n2"))
    assert (await scheduler.restart(RESTART)).status == "done"
    assert not before & {pod["metadata"]["uid"] for pod in kube.pods.values()}
    assert kube.placed() == ["n1", "n9", "n3"]
    assert (await scheduler.restart(RESTART)).status == "already"
    assert (len(kube.commands) == 1) == (kind == "VolcanoJob")


async def test_bare_pods_are_not_ended_for_nobody_would_bring_them_back(start) -> None:
    kube, scheduler = await start("Pod")
    with pytest.raises(SchedulerError) as caught:
        await scheduler.restart(RESTART)
    assert (caught.value.code, caught.value.again) == ("not_supported", False)
    assert len(kube.pods) == 3


async def test_pods_are_evicted_and_only_those_of_the_lost_node_are_deleted_by_force(both) -> None:
    kube, scheduler = both
    await scheduler.restart(RESTART)
    deleted = [body for method, path, body in kube.requests if method == "DELETE"]
    assert [body["gracePeriodSeconds"] for body in deleted] == [0]
    assert sum(path.endswith("/eviction") for _, path, _ in kube.requests) == 2


async def test_another_writer_in_between_is_borne(both) -> None:
    kube, scheduler = both
    kube.conflicts = 3
    assert (await scheduler.quarantine(order(node="n2"))).status == "done"
    kube.conflicts = 3
    assert (await scheduler.restart(RESTART)).status == "done"


async def test_object_that_changes_without_end_is_tried_again_later(both) -> None:
    kube, scheduler = both
    kube.conflicts = 1000
    with pytest.raises(SchedulerError) as caught:
        await scheduler.quarantine(order(node="n2"))
    assert (caught.value.code, caught.value.again) == ("busy", True)


async def test_crash_between_mark_and_end_is_finished_and_new_pods_are_left_alone(both) -> None:
    kube, scheduler = both
    kube.budget_refusals = 1
    with pytest.raises(SchedulerError) as caught:
        await scheduler.restart(RESTART)
    assert (caught.value.code, caught.value.again) == ("busy", True)
    born = {pod["metadata"]["uid"] for pod in kube.pods.values() if pod["metadata"]["uid"] not in ("pod-1", "pod-2", "pod-3")}
    assert born, "some of the old attempt were ended already"
    assert (await scheduler.restart(RESTART)).status == "done"
    assert born <= {pod["metadata"]["uid"] for pod in kube.pods.values()}


@pytest.mark.parametrize("ending", ["410", "410 event", "half a line", ""])
async def test_watch_that_breaks_is_begun_anew(start, ending: str) -> None:
    kube, scheduler = await start()
    kube.watch_ends = [ending] * 3
    gone = await scheduler._api.until_gone("/api/v1/namespaces/default/pods", {"pod-1"}, 0.3)
    assert gone == {"pod-1"}, "it is still there, and the wait ended"
    kube._remove("j1-0-1")
    assert await scheduler._api.until_gone("/api/v1/namespaces/default/pods", {"pod-1"}, 5.0) == set()


async def test_wrong_token_is_said_and_the_token_is_read_anew(both, tmp_path: Path) -> None:
    kube, scheduler = both
    kube.token = "rotated"
    with pytest.raises(SchedulerError) as caught:
        await scheduler.nodes()
    assert (caught.value.code, caught.value.again) == ("unauthorised", True)
    (tmp_path / "token").write_text("rotated")
    assert set(await scheduler.nodes()) == set(NODES)


@pytest.mark.parametrize(
    ("patch", "body", "said"),
    [
        ("merge", {"spec": {"unscheduleable": True}}, "unknown field .spec.unscheduleable"),
        ("merge", {"spec": {"unschedulable": "yes"}}, ".spec.unschedulable: must be bool"),
        ("merge", {"spec": {"taints": {"key": "a"}}}, ".spec.taints: must be a list"),
        ("merge", {"spec": {"taints": [{"key": "a", "effect": 1}]}}, ".spec.taints[0].effect: must be str"),
        ("merge", {"spec": {"taints": [{"key": "a"}]}}, ".spec.taints[0].effect: Required value"),
        ("merge", {"spec": {"taints": [{"key": "a", "effect": "NoWork"}]}}, ".spec.taints[].effect: Unsupported value ['NoWork']"),
        ("merge", {"metadata": {"annotations": {"a": 5}}}, ".metadata.annotations.a: must be str"),
        ("merge", {"metadata": {"annotations": {"a": None}}, "spec": {"unschedulable": None}}, None),
        ("strategic", {"status": {"conditions": [{"type": "Ready", "reason": "Late"}]}}, None),
        ("strategic", {"status": {"conditions": [{"type": "New", "reason": "Late"}]}},
         ".status.conditions[1].status: Required value"),
        ("strategic", {"status": {"conditions": [{"type": "Ready", "lastHeartbeatTime": "2026-01-01 00:00"}]}},
         ".status.conditions[0].lastHeartbeatTime: must be a time as in RFC 3339"),
    ],
)  # fmt: skip
def test_patch_of_a_node_that_the_published_openapi_does_not_allow_is_named_by_its_path(patch, body, said: str | None) -> None:
    node = {"metadata": {"name": "n1"}, "spec": {}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    assert misfit_of_patch("V1Node", body, node, patch) == said


def test_whole_body_that_the_published_openapi_does_not_allow_is_named_by_its_path() -> None:
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    assert misfit_of_eviction("p", eviction) is None
    assert misfit_of_eviction("q", eviction) == ".metadata.name: must be q"
    assert misfit_of_eviction("p", eviction | {"apiVersion": "policy/v1beta1"}) == ".apiVersion, .kind: must be policy/v1 Eviction"
    assert misfit_of_eviction("p", eviction | {"deleteOption": {}}) == "unknown field .deleteOption"
    assert misfit("V1DeleteOptions", {"gracePeriodSeconds": "0"}) == ".gracePeriodSeconds: must be int"
    assert misfit("V1DeleteOptions", {"preconditions": {"uuid": "u"}}) == "unknown field .preconditions.uuid"
    assert misfit("V1Job", {"spec": {"parallelism": 2}}) == ".spec.template: Required value"


@pytest.mark.parametrize(
    ("send", "said"),
    [
        (lambda api: api.patch_status("/api/v1/nodes/n2", {"status": {"conditions": [{"type": "X", "state": "True"}]}}),
         "unknown field .status.conditions[0].state"),
        (lambda api: api.change("/api/v1/nodes/n2", lambda _: {"spec": {"unschedulable": 1}}), ".spec.unschedulable: must be bool"),
        (lambda api: api.delete("/api/v1/namespaces/default/pods/j1-0-1", "pod-1", "0"), ".gracePeriodSeconds: must be int"),
        (lambda api: api.create("/api/v1/namespaces/default/pods/j1-0-1/eviction", {"metadata": {"name": "j1-0-1"}}), "policy/v1"),
    ],
)  # fmt: skip
async def test_adapter_that_sent_such_a_body_would_fail_with_the_path(both, send: Callable, said: str) -> None:
    kube, scheduler = both
    with pytest.raises(SchedulerError) as caught:
        await send(scheduler._api)
    assert said in str(caught.value)
    (refused,) = kube.refused
    assert said in refused
    kube.refused.clear()


@pytest.mark.parametrize(
    ("kind", "change", "said"),
    [
        ("Workload", {"spec": {"activ": False}}, "unknown field .spec.activ"),
        ("Workload", {"spec": {"active": "false"}}, ".spec.active: must be boolean"),
        ("Workload", {"status": {"conditions": []}}, "unknown field .status: it is changed by its own path"),
        ("Workload", {"spec": {"podSets": [{"count": 3}]}}, ".spec.podSets[0].template: Required value"),
        ("Workload", {"metadata": {"annotations": {"a": None}}, "spec": {"active": False}}, None),
        ("JobSet", {"spec": {"suspended": True}}, "unknown field .spec.suspended"),
        ("JobSet", {"spec": {"failurePolicy": {"restartStrategy": "Again"}}},
         ".spec.failurePolicy.restartStrategy: enum is ['Recreate', 'BlockingRecreate', 'InPlaceRestart']"),
        ("TrainJob", {"spec": {"runtimeRef": None}}, ".spec.runtimeRef: Required value"),
        ("PyTorchJob", {"spec": {"runPolicy": {"suspend": "yes"}}}, ".spec.runPolicy.suspend: must be boolean"),
        ("VolcanoJob", {"spec": {"minAvailable": "3"}}, ".spec.minAvailable: must be integer"),
        ("VolcanoJob", {"metadata": {"annotations": {"a": 1}}}, ".metadata.annotations.a: must be str"),
    ],
)  # fmt: skip
def test_patch_of_a_custom_kind_that_its_published_crd_does_not_allow_is_named_by_its_path(kind, change, said: str | None) -> None:
    kube = Kube("JobSet" if kind == "Workload" else kind, NODES, ["n1", "n2", "n3"], queue="gpus")
    assert kube.kueue is not None
    found = kube.kueue.workload if kind == "Workload" else kube.top
    assert misfit_of_custom_patch(kind, change, found) == said


def test_command_that_the_published_crd_does_not_allow_is_named_by_its_path() -> None:
    target = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "j", "uid": "u"}
    command = {"apiVersion": "bus.volcano.sh/v1alpha1", "kind": "Command", "metadata": {"name": "c"}, "action": "RestartJob"}
    assert misfit_of_custom("Command", command | {"target": target}) is None
    assert misfit_of_custom("Command", command | {"target": {**target, "uid": 1}}) == ".target.uid: must be string"
    assert misfit_of_custom("Command", command | {"target": {"name": "j"}}) == ".target.apiVersion: Required value"
    assert misfit_of_custom("Command", command | {"kind": "Order", "target": target}) == ".apiVersion, .kind: must be " + (
        "bus.volcano.sh/v1alpha1 Command"
    )


@pytest.mark.parametrize("kind", list(CHAINS))
def test_what_the_fake_serves_fits_the_published_openapi_and_crds_itself(kind: str) -> None:
    kube = Kube(kind, NODES, ["n1"], queue="gpus")
    assert [misfit("V1Node", node) for node in kube.nodes.values()] == [None] * len(NODES)
    assert [misfit("V1Pod", pod) for pod in kube.pods.values()] == [None]
    names = {place: name for name, place in KINDS.items()}
    for (version, place), owner in kube.owners.items():
        name = names[version, place.split("/")[0]]
        assert (misfit("V1Job", owner) if name == "Job" else misfit_of_custom(name, owner)) is None
    if kube.kueue is not None:
        for served in ("kueue.x-k8s.io/v1beta1", "kueue.x-k8s.io/v1beta2"):
            assert misfit_of_custom("Workload", kube.kueue.workload | {"apiVersion": served}, served) is None


async def test_attempt_fence_and_rank_map_of_the_next_attempt_stand_in_a_config_map_before_the_old_pods_end(both) -> None:
    kube, scheduler = both
    await scheduler.restart(RESTART)
    (made,) = kube.maps.values()
    assert made["metadata"]["name"] == "outrider-ranks-j1"
    assert made["metadata"]["ownerReferences"][0]["uid"] == "JobSet-uid", "it goes with the job"
    data = made["data"]
    assert {key: data[key] for key in data if key != "ranks.json"} == {
        "OUTRIDER_JOB": "j1", "OUTRIDER_ATTEMPT": "2", "OUTRIDER_FENCE": "5", "WORLD_SIZE": "3",
    }  # fmt: skip
    assert [place["node"] for place in json.loads(data["ranks.json"])["ranks"]] == ["n1", "n9", "n3"]
    paths = [path for method, path, _ in kube.requests if method in ("POST", "DELETE")]
    assert paths[0].endswith("/configmaps"), "pods that come back at once must find it"
    await scheduler.restart(order(7, job="j1", attempt=2, slots=("n1", None, "n3"), replace=(Replace(slot=1, from_="n9"),)))
    data = kube.maps["outrider-ranks-j1"]["data"]
    assert (data["OUTRIDER_ATTEMPT"], data["OUTRIDER_FENCE"], json.loads(data["ranks.json"])["ranks"][1]["node"]) == ("3", "7", "")


async def test_nodes_to_be_left_are_cordoned_before_a_pod_is_ended(both) -> None:
    kube, scheduler = both
    await scheduler.restart(RESTART)
    writes = [path for method, path, _ in kube.requests if method in ("POST", "DELETE", "PATCH")]
    ends = [place for place, path in enumerate(writes) if "/pods/" in path]
    assert writes.index("/api/v1/nodes/n2") < ends[0]
    assert not kube.takes_work("n2")
    assert kube.placed() == ["n1", "n9", "n3"]
