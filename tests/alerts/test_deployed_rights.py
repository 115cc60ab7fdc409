"""What is deployed fits what the code does."""

import re
from pathlib import Path

import pytest
from aiohttp.test_utils import TestServer
from kube_crds import misfit_of_custom
from kube_fake import TOKEN, Kube
from kube_openapi import misfit
from kube_world import CHAINS

from alerts.bodies import Data, Replace
from alerts.schedulers.kube_ranks import map_name
from alerts.schedulers.kubernetes import KubernetesScheduler
from alerts.schedulers.kueue_watch import KueueWatch
from outrider.config.targets import KubernetesTarget

yaml = pytest.importorskip("yaml", reason="comes with kubernetes-asyncio (group dev)")
ROOT = Path(__file__).parents[2]
VERBS = {"POST": "create", "PATCH": "patch", "DELETE": "delete", "WATCH": "watch"}


def right(method: str, path: str) -> tuple[str, str, str] | None:
    """The right that a request needs: group, resource, verb; None for discovery, which everybody may do."""
    found = re.fullmatch(r"/(?:api/v1|apis/([^/]+)/[^/]+)(?:/namespaces/[^/]+)?/([a-z]+)(?:/([^/]+))?(?:/([a-z]+))?", path)
    if path.startswith("/apis/") and path.count("/") <= 3:
        return None
    assert found is not None, path
    group, resource, name, part = found.groups()
    verb = VERBS.get(method) or ("get" if name else "list")
    return group or "", f"{resource}/{part}" if part else resource, verb


async def use_it_all(kind: str, queue: str, token: str) -> set[tuple[str, str, str]]:
    """Everything that the adapter does with one kind of job; the rights that its requests needed."""
    kube = Kube(kind, ["n1", "n2", "n9"], ["n1", "n2"], queue=queue)
    server = TestServer(kube.application())
    await server.start_server()
    target = KubernetesTarget(name="k", url=str(server.make_url("")), token_file=token)
    scheduler = KubernetesScheduler(target)
    await scheduler.open()

    async def tell(_: object) -> bool:
        return True

    def order(fence: int, attempt: int) -> Data:
        return Data(fence=fence, incident="i", fault="node.lost", job="j1", node="n2", attempt=attempt, slots=("n1", "n9"),
                    replace=(Replace(slot=1, from_="n2", to="n9"),))  # fmt: skip

    try:
        await scheduler.nodes()
        await scheduler.quarantine(order(1, 1))
        await scheduler.restart(order(2, 1))
        await scheduler.restart(order(3, 2))
        await scheduler.release(order(4, 2))
        lasting = {pod["metadata"]["uid"] for pod in kube.pods.values()}
        left = await scheduler._api.until_gone("/api/v1/namespaces/default/pods", lasting, 0.1)  # pods that take their time
        assert left == lasting
        if kube.kueue is not None:
            kube.evict("Preempted")
            watch = KueueWatch(target, tell)
            await watch._api.open()
            await watch.once("/apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads", 1.0)
            await watch._api.close()
            await scheduler.restart(order(5, 3))
    finally:
        await scheduler.close()
        await server.close()
    return {found for method, path, _ in kube.requests if (found := right(method, path)) is not None}


async def test_rights_in_kubernetes_are_what_the_requests_of_every_kind_of_job_need_and_no_more(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    needed: set[tuple[str, str, str]] = set()
    for kind in CHAINS:
        if kind != "Pod":
            needed |= await use_it_all(kind, "gpus" if kind != "VolcanoJob" else "", str(token))
            needed |= await use_it_all(kind, "", str(token))
    granted = set()
    for part in yaml.safe_load_all((ROOT / "deploy/kubernetes/rbac.yaml").read_text()):
        for rule in part.get("rules", ()):
            granted |= {(group, what, verb) for group in rule["apiGroups"] for what in rule["resources"] for verb in rule["verbs"]}
    assert granted == needed


def test_example_job_fits_the_published_apis_and_takes_its_attempt_from_the_rank_map() -> None:
    job = yaml.safe_load((ROOT / "deploy/kubernetes/jobset.yaml").read_text())
    assert misfit_of_custom("JobSet", job) is None
    template = job["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    assert misfit("V1PodTemplateSpec", template) is None
    name = template["metadata"]["labels"]["outrider.dev/job"]
    assert map_name(name) in str(template["spec"])
    assert job["metadata"]["namespace"] in (ROOT / "deploy/kubernetes/rbac.yaml").read_text()


@pytest.mark.parametrize("page", ["docs/schedulers.md", "docs/webhooks.md", "docs/safety.md", "docs/alerting.md"])
def test_files_that_the_pages_name_are_there(page: str) -> None:
    text = (ROOT / page).read_text()
    for name in re.findall(r"`((?:deploy|tests|docs)/[\w./-]+)`", text):
        assert (ROOT / name).exists(), name
    for name in re.findall(r"`(decisions/[\w.-]+)`", text):
        assert (ROOT / "docs" / name).exists(), name
