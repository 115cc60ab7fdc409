"""Real Slurm: a real job loses a node and comes back on the spare, every rank in its place; drain, reason, undrain after repair."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from alerts_doubles import until
from slurm_cluster import SlurmCluster

from alerts.bodies import Data, Replace
from alerts.schedulers.port import Done, SchedulerError
from alerts.schedulers.slurm import SlurmScheduler
from alerts.schedulers.slurm_api import RestApi, make_api
from outrider.config.targets import SlurmTarget

pytestmark = pytest.mark.real

SCRIPT = """#!/bin/bash
export OUTRIDER_ATTEMPT=$((SLURM_RESTART_COUNT + 1))
test -e {ranks}/j1.hosts && export SLURM_HOSTFILE={ranks}/j1.hosts && how=--distribution=arbitrary
srun $how bash -c 'echo $SLURMD_NODENAME > {out}/$OUTRIDER_ATTEMPT-$SLURM_PROCID; exec sleep 300'
"""


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    folder = Path(tempfile.mkdtemp(prefix="outrider-slurm-"))
    cluster = SlurmCluster(folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=["slurmrestd", "scontrol"])
async def scheduler(request: pytest.FixtureRequest, slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SLURM_CONF", str(slurm.folder / "slurm.conf"))
    token = slurm.folder / "token"
    token.write_text(slurm.token())
    token.chmod(0o600)
    rest = {"url": slurm.rest, "token_file": str(token)} if request.param == "slurmrestd" else {}
    target = SlurmTarget(name="slurm", rank_map_dir=str(slurm.folder / "ranks"), settle_seconds=30.0, **rest)
    made = SlurmScheduler(target, make_api(target))
    await made.open()
    yield made
    await made.close()


def order(fence: int, **more: object) -> Data:
    return Data(fence=fence, incident="i1", fault="node.lost", explanation="gpu1 is silent", **more)


def places(out: Path, attempt: int) -> list[str]:
    """The node of each rank of an attempt, of those that have written theirs to the end."""
    found = sorted(out.glob(f"{attempt}-*"), key=lambda path: int(path.name.partition("-")[2]))
    return [text.strip() for path in found if (text := path.read_text()).endswith("\n")]


async def test_job_loses_a_node_and_comes_back_on_the_spare_in_the_same_rank_order(
    slurm: SlurmCluster, scheduler: SlurmScheduler, tmp_path: Path
) -> None:
    out = tmp_path
    script = slurm.folder / "job.sh"
    script.write_text(SCRIPT.format(ranks=slurm.folder / "ranks", out=out))
    job = slurm.sbatch("-N3", "--ntasks-per-node=2", "-wgpu[0-2]", "--requeue", "--job-name=j1", f"--output={out}/log", str(script))
    try:
        await until(lambda: len(places(out, 1)) == 6, 90)
        assert places(out, 1) == ["gpu0", "gpu0", "gpu1", "gpu1", "gpu2", "gpu2"]
        slurm.lose("gpu1")
        replace = tuple(Replace(slot=slot, from_="gpu1", to="gpu3") for slot in (2, 3))
        assert (await scheduler.quarantine(order(5, node="gpu1"))).status == "done"
        assert slurm.state("gpu1").split("+")[1].startswith("DRAIN")
        assert slurm.reason("gpu1").startswith("outrider fence=5 incident=i1 node.lost: gpu1 is silent")
        restart = order(5, job="j1", attempt=1, replace=replace)
        done = await scheduler.restart(restart)
        assert done.status == "done", done
        await until(lambda: len(places(out, 2)) == 6, 90)
        assert places(out, 2) == ["gpu0", "gpu0", "gpu3", "gpu3", "gpu2", "gpu2"], "rank 2 and 3 moved, no other"
        # The same order again, an older one, one for an attempt that is over: nothing happens.
        assert (await scheduler.restart(restart)).status == "already"
        assert (await scheduler.restart(order(4, job="j1", attempt=2))).status == "old_fence"
        assert (await scheduler.restart(order(6, job="j1", attempt=1))).status == "old_attempt"
        assert (await scheduler._api.job(job)).restarts == 1
        # Repaired: the daemon is back, a person says so.
        slurm.begin_node("gpu1")
        released = await scheduler.release(order(7, node="gpu1"))
        assert released == Done(status="done", note="gpu1 is in service again")

        async def idle() -> bool:
            state = (await scheduler.nodes())["gpu1"]
            return state.in_service and state.alive

        await until(idle, 90)
        assert (await scheduler.release(order(7, node="gpu1"))).status == "already"
    finally:
        slurm.scontrol("update", f"JobId={job}", "Requeue=0")
        _cancel(slurm, job)
        shutil.rmtree(slurm.folder / "ranks", ignore_errors=True)
        await until(lambda: slurm.state("gpu0").startswith("IDLE") and slurm.state("gpu1").startswith("IDLE"), 90)


def _cancel(slurm: SlurmCluster, job: int) -> None:
    slurm._call("scancel", str(job))


async def test_slurm_requeued_the_job_by_itself_and_it_is_put_onto_the_spare_all_the_same(
    slurm: SlurmCluster, scheduler: SlurmScheduler
) -> None:
    script = slurm.folder / "sleep.sh"
    script.write_text("#!/bin/bash\nsleep 300\n")
    job = slurm.sbatch("-N2", "--ntasks-per-node=1", "-wgpu[0-1]", "--requeue", "--job-name=j2", "--output=/dev/null", str(script))
    try:

        async def state() -> str:
            return "+".join(sorted((await scheduler._api.job(job)).states))

        async def running() -> bool:
            return await state() == "RUNNING"

        await until(running, 90)
        await scheduler.quarantine(order(8, node="gpu1"))
        slurm.scontrol(
            "update", "NodeName=gpu1", "State=DOWN", "Reason=outrider fence=8 test"
        )  # what Slurm does when it finds it down

        async def pending() -> bool:
            return "PENDING" in await state()

        await until(pending, 90)
        done = await scheduler.restart(order(8, job="j2", attempt=1, replace=(Replace(slot=1, from_="gpu1", to="gpu3"),)))
        assert done.status == "done"
        await until(running, 240)  # Slurm lets a job that it requeued itself wait two minutes, if its own word comes last
        assert (await scheduler._api.job(job)).nodes == ("gpu0", "gpu3")
        assert (await scheduler._api.job(job)).restarts == 1
    finally:
        _cancel(slurm, job)
        await scheduler.release(order(9, node="gpu1"))
        shutil.rmtree(slurm.folder / "ranks", ignore_errors=True)
        await until(lambda: slurm.state("gpu0").startswith("IDLE") and slurm.state("gpu1").startswith("IDLE"), 90)


@pytest.mark.parametrize(
    ("call", "more", "code"),
    [
        ("drain", {"node": "gpu9"}, "no_such_node"),
        ("restart", {"job": "nobody"}, "no_such_job"),
        ("restart", {"job": "4711"}, "no_such_job"),
    ],
)
async def test_slurm_that_knows_no_such_thing_is_a_clear_end(scheduler: SlurmScheduler, call: str, more: dict, code: str) -> None:
    with pytest.raises(SchedulerError) as caught:
        await getattr(scheduler, call)(order(1, **more))
    assert (caught.value.code, caught.value.again) == (code, False)


async def test_wrong_token_is_said_and_tried_again(slurm: SlurmCluster, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("not.a.token")
    token.chmod(0o600)
    api = RestApi(SlurmTarget(name="s", url=slurm.rest, token_file=str(token), scontrol=""))
    await api.open()
    try:
        with pytest.raises(SchedulerError) as caught:
            await api.nodes()
        assert (caught.value.code, caught.value.again) == ("unauthorised", True), caught.value.reason
    finally:
        await api.close()


async def test_node_drained_by_a_person_stays_as_that_person_left_it(slurm: SlurmCluster, scheduler: SlurmScheduler) -> None:
    slurm.scontrol("update", "NodeName=gpu2", "State=DRAIN", "Reason=new disk")
    try:
        assert (await scheduler.drain(order(9, node="gpu2"))).status == "already"
        assert (await scheduler.release(order(9, node="gpu2"))).status == "already"
        assert slurm.reason("gpu2").startswith("new disk")
    finally:
        slurm.scontrol("update", "NodeName=gpu2", "State=RESUME")
