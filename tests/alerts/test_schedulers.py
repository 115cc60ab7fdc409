"""One contract for every scheduler: repeats, old fences and old attempts change nothing; ranks stay; unknown things end clearly."""

import json
import re
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestServer
from alerts_doubles import row
from kube_fake import TOKEN, Kube

from alerts.bodies import Data, Replace
from alerts.schedulers.hosts import HostsScheduler
from alerts.schedulers.kube_ranks import map_name
from alerts.schedulers.kubernetes import KubernetesScheduler
from alerts.schedulers.port import Scheduler, SchedulerError, amends, fence_of, reason_of
from alerts.schedulers.ranks import file_name, make_map, moved, read_map, told, write_map
from alerts.schedulers.sender import SchedulerSender
from alerts.schedulers.slurm import SlurmScheduler
from alerts.schedulers.slurm_reading import SlurmJob, SlurmNode, failure, read_job, read_lines, read_node, that_one
from outrider.config.alerts import SpareCheck
from outrider.config.targets import HostsTarget, KubernetesTarget, SlurmTarget
from outrider.parsers.hostlist import expand

NODES = ("n1", "n2", "n3", "n9")


def order(fence: int = 5, **more: Any) -> Data:
    return Data(fence=fence, incident="i1", fault="node.lost", explanation="n2 is silent", **more)


RESTART = order(job="j1", attempt=1, replace=(Replace(slot=1, from_="n2", to="n9"),))


@dataclass
class Stage:
    """A scheduler with a world behind it: job j1 runs attempt 1 on n1, n2, n3; n9 is free."""

    scheduler: Scheduler
    world: Any

    def restarts(self) -> int:
        return self.world.restarts()

    def placed(self) -> list[str]:
        return list(self.world.placed())

    def break_(self) -> None:
        self.world.broken = True


class FakeSlurm:
    """Slurm's behaviour as far as the adapter relies on it (the real one has its own tests)."""

    def __init__(self, folder: Path) -> None:
        self.states = {name: {"IDLE"} if name == "n9" else {"ALLOCATED"} for name in NODES}
        self.reasons = dict.fromkeys(NODES, "")
        self.one = SlurmJob(job_id=7, name="j1", states=frozenset({"RUNNING"}), nodes=NODES[:3], restarts=0, comment="",
                            partition="train",                             tasks_per_node=1, tasks=3, held=False)  # fmt: skip
        self.asked: tuple[str, ...] = ()
        self.folder, self.broken = folder, False

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def nodes(self) -> list[SlurmNode]:
        self._try()
        return [
            SlurmNode(name=name, states=frozenset(self.states[name]), reason=self.reasons[name], partitions=("train",))
            for name in NODES
        ]

    async def node(self, name: str) -> SlurmNode:
        self._try()
        if name not in self.states:
            raise failure(f"scontrol: Invalid node name specified: {name}")
        return next(node for node in await self.nodes() if node.name == name)

    async def job(self, job_id: int) -> SlurmJob:
        self._try()
        return self.one

    async def jobs(self) -> list[SlurmJob]:
        self._try()
        return [self.one]

    async def update(self, *words: str) -> None:
        self._try()
        said = dict(word.split("=", 1) for word in words)
        if node := said.get("NodeName"):
            self.states[node] = {"IDLE"} if said["State"] == "RESUME" else self.states[node] | {said["State"]}
            self.reasons[node] = "" if said["State"] == "RESUME" else said["Reason"]
            return
        self.one = replace(self.one, comment=said.get("Comment", self.one.comment))
        if "ReqNodeList" in said:
            self.asked = tuple(said["ReqNodeList"].split(","))
        if said.get("StartTime") == "now" and not self.one.held:
            self.one = replace(self.one, states=frozenset({"RUNNING"}), nodes=self.asked)

    async def command(self, *words: str) -> None:
        self._try()
        if words[0] == "requeuehold":
            self.one = replace(self.one, states=frozenset({"PENDING"}), nodes=(), restarts=self.one.restarts + 1, held=True)
        elif words[0] in ("hold", "release"):
            self.one = replace(self.one, held=words[0] == "hold")

    def _try(self) -> None:
        if self.broken:
            raise failure("Unable to contact slurm controller (connect failure)")

    def restarts(self) -> int:
        return self.one.restarts

    def placed(self) -> tuple[str, ...]:
        known = read_map(self.folder, "j1")
        assert known is not None
        assert set(known.nodes) == set(self.one.nodes)
        return known.nodes


class Hosts:
    """Commands that write down how they were called."""

    def __init__(self, folder: Path) -> None:
        self.log, self.flag = folder / "log", folder / "broken"
        write = f"print(*sys.argv[1:], file=pathlib.Path({str(self.log)!r}).open('a'))"
        script = f"import sys, pathlib; {write}; sys.exit(pathlib.Path({str(self.flag)!r}).exists())"
        command = (sys.executable, "-c", script)
        self.target = HostsTarget(
            name="hosts", state_dir=str(folder / "state"), jobs={"j1": NODES[:3]}, stop=(*command, "stop", "{node}"),
            start=(*command, "start", "{node}", "{node_rank}", "{attempt}", "{port}", "{rank_map}"),
        )  # fmt: skip

    def calls(self, what: str) -> list[list[str]]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [line.split() for line in lines if line.startswith(what)]

    def restarts(self) -> int:
        return len({call[3] for call in self.calls("start")})

    def placed(self) -> list[str]:
        """Of the newest attempt."""
        newest = max((int(call[3]) for call in self.calls("start")), default=0)
        calls = [call for call in self.calls("start") if int(call[3]) == newest]
        return [call[1] for call in sorted(calls, key=lambda call: int(call[2]))]

    @property
    def broken(self) -> bool:
        return self.flag.exists()

    @broken.setter
    def broken(self, on: bool) -> None:
        self.flag.touch() if on else self.flag.unlink()


class KubeStage(Kube):
    broken = False

    def restarts(self) -> int:
        return (
            int(any(pod["metadata"]["uid"] not in ("pod-1", "pod-2", "pod-3") for pod in self.pods.values()))
            if self.clock < 7
            else 2
        )

    async def _answer(self, request):
        if self.broken:
            from aiohttp import web

            return web.Response(status=503)
        return await super()._answer(request)


@pytest.fixture(params=["slurm", "kubernetes", "hosts"])
async def stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stage]:
    server = None
    if request.param == "slurm":
        world: Any = FakeSlurm(tmp_path)
        made: Scheduler = SlurmScheduler(SlurmTarget(name="slurm", rank_map_dir=str(tmp_path)), world)
    elif request.param == "hosts":
        world = Hosts(tmp_path)
        made = HostsScheduler(world.target)
    else:
        world = KubeStage("JobSet", list(NODES), list(NODES[:3]))
        server = TestServer(world.application())
        await server.start_server()
        token = tmp_path / "token"
        token.write_text(TOKEN)
        token.chmod(0o600)
        made = KubernetesScheduler(KubernetesTarget(name="kube", url=str(server.make_url("")), token_file=str(token)))
    await made.open()
    yield Stage(made, world)
    await made.close()
    if server is not None:
        await server.close()


async def test_node_taken_out_says_why_and_by_whom_and_comes_back_on_release(stage: Stage) -> None:
    scheduler = stage.scheduler
    assert (await scheduler.quarantine(order(node="n2"))).status == "done"
    state = (await scheduler.nodes())["n2"]
    assert (state.in_service, state.ours) == (False, True)
    assert fence_of(state.reason) == 5
    assert "n2 is silent" in state.reason
    assert (await scheduler.release(order(6, node="n2"))).status == "done"
    assert (await scheduler.nodes()).get("n2") is None or (await scheduler.nodes())["n2"].in_service


@pytest.mark.parametrize("call", ["quarantine", "drain"])
async def test_repeat_is_success_and_an_older_fence_changes_nothing(stage: Stage, call: str) -> None:
    take = getattr(stage.scheduler, call)
    assert (await take(order(node="n2"))).status == "done"
    assert (await take(order(node="n2"))).status == "already"
    assert (await take(order(4, node="n2"))).status == "old_fence"
    assert fence_of((await stage.scheduler.nodes())["n2"].reason) == 5
    assert (await take(order(7, node="n2"))).status == "done"
    assert (await stage.scheduler.release(order(6, node="n2"))).status == "old_fence"
    assert not (await stage.scheduler.nodes())["n2"].in_service


async def test_release_of_a_node_that_is_in_service_is_success(stage: Stage) -> None:
    assert (await stage.scheduler.release(order(node="n1"))).status == "already"


async def test_restart_puts_the_spare_into_the_slot_and_every_other_rank_stays(stage: Stage) -> None:
    await stage.scheduler.quarantine(order(node="n2"))
    assert (await stage.scheduler.restart(RESTART)).status == "done"
    assert stage.placed() == ["n1", "n9", "n3"]
    assert stage.restarts() == 1


async def test_restart_told_again_late_or_by_an_old_leader_restarts_nothing(stage: Stage) -> None:
    await stage.scheduler.quarantine(order(node="n2"))
    await stage.scheduler.restart(RESTART)
    assert (await stage.scheduler.restart(RESTART)).status == "already"
    assert (await stage.scheduler.restart(order(4, job="j1", attempt=2))).status == "old_fence"
    assert (await stage.scheduler.restart(order(9, job="j1", attempt=1))).status == "old_attempt"
    assert stage.restarts() == 1
    assert stage.placed() == ["n1", "n9", "n3"]


async def test_second_fault_before_the_job_told_of_its_new_attempt_amends_the_recovery(stage: Stage) -> None:
    """The leader still knows attempt 1; attempt 2 runs already, on a node that is lost by now."""
    scheduler = stage.scheduler
    await scheduler.quarantine(order(node="n2"))
    await scheduler.restart(RESTART)
    await scheduler.release(order(6, node="n2"))
    await scheduler.quarantine(order(7, node="n3"))
    both = (*RESTART.replace, Replace(slot=2, from_="n3", to="n2"))
    amended = order(8, job="j1", attempt=1, replace=both)
    assert (await scheduler.restart(amended)).status == "done"
    assert stage.placed() == ["n1", "n9", "n2"]
    assert stage.restarts() == 2
    assert (await scheduler.restart(amended)).status == "already"
    late = order(9, job="j1", attempt=1, replace=both, slots=("n1", "n9", "n2"))
    assert (await scheduler.restart(late)).status == "old_attempt", "all is where it should be"
    assert stage.restarts() == 2


@pytest.mark.parametrize(
    ("call", "more", "code"),
    [("restart", {"job": "nobody"}, "no_such_job"), ("restart", {}, "no_such_job"), ("drain", {}, "no_such_node")],
)
async def test_order_about_nothing_known_ends_clearly(stage: Stage, call: str, more: dict, code: str) -> None:
    with pytest.raises(SchedulerError) as caught:
        await getattr(stage.scheduler, call)(order(**more))
    assert caught.value.code == code


async def test_scheduler_that_fails_is_tried_again_and_finishes_then(stage: Stage) -> None:
    await stage.scheduler.quarantine(order(node="n2"))
    stage.world.broken = True
    with pytest.raises(SchedulerError) as caught:
        await stage.scheduler.restart(RESTART)
    assert caught.value.again
    stage.world.broken = False
    if isinstance(stage.world, Hosts):
        stage.world.log.unlink()
    assert (await stage.scheduler.restart(RESTART)).status == "done"
    assert stage.placed() == ["n1", "n9", "n3"]


# -- a rank map that is damaged --------------------------------------------------------------------------------------------

DAMAGE = {
    "cut off": lambda text: text[: len(text) // 2],
    "empty": lambda _: "",
    "zeroes": lambda text: "\0" * len(text),
    "another's": lambda text: text.replace('"j1"', '"j2"'),
    "no ranks": lambda _: '{"job": "j1", "attempt": 2, "fence": 5, "ranks": []}',
    "out of order": lambda text: text.replace('"slot": 0', '"slot": 7'),
}


async def slurm_in_its_second_attempt(folder: Path) -> tuple[FakeSlurm, SlurmScheduler]:
    """n9 has taken slot 1; the ranks are no longer in the order in which Slurm names the nodes."""
    world = FakeSlurm(folder)
    scheduler = SlurmScheduler(SlurmTarget(name="slurm", rank_map_dir=str(folder)), world)
    await scheduler.quarantine(order(node="n2"))
    await scheduler.restart(RESTART)
    await scheduler.release(order(6, node="n2"))
    world.one = replace(world.one, nodes=tuple(sorted(world.one.nodes)))
    assert world.one.nodes == ("n1", "n3", "n9") and read_map(folder, "j1").nodes == ("n1", "n9", "n3")
    return world, scheduler


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
@pytest.mark.parametrize("told_by", ["host file", "order"])
async def test_a_damaged_rank_map_is_made_anew_from_who_else_knows_the_ranks(
    tmp_path: Path, damage: Callable[[str], str], told_by: str
) -> None:
    world, scheduler = await slurm_in_its_second_attempt(tmp_path)
    path = tmp_path / "j1.ranks.json"
    path.write_text(damage(path.read_text()))
    slots: tuple[str, ...] = ()
    if told_by == "order":
        (tmp_path / "j1.hosts").write_text("n4\nn5\n")  # of another day
        slots = ("n1", "n9", "n2")
    drained = await scheduler.quarantine(order(8, node="n3"))
    assert str(path) in drained.note and "damaged" in drained.note, "no damage keeps a sick node in service"
    swap = (Replace(slot=2, from_="n3", to="n2"),)
    done = await scheduler.restart(order(9, job="j1", attempt=2, replace=swap, slots=slots))
    assert done.status == "done" and f"{path} is damaged" in done.note and "made anew" in done.note
    assert world.placed() == ("n1", "n9", "n2")


async def test_a_damaged_rank_map_that_nobody_can_replace_tells_the_person_what_to_do(tmp_path: Path) -> None:
    """Slurm names the nodes in an order of its own: a rank map guessed from it would put the spare into a sound node's slot."""
    world, scheduler = await slurm_in_its_second_attempt(tmp_path)
    path = tmp_path / "j1.ranks.json"
    path.write_text("{")
    (tmp_path / "j1.hosts").unlink()
    with pytest.raises(SchedulerError, match=r"put a copy of it back, or remove it.*outrider outbox retry") as caught:
        await scheduler.restart(order(9, job="j1", attempt=2, replace=(Replace(slot=2, from_="n3", to="n2"),)))
    assert (caught.value.code, caught.value.again) == ("damaged", False), "trying again mends no file"
    assert str(path) in caught.value.reason
    assert world.restarts() == 1 and path.read_text() == "{", "nothing was ended, and what there is to look at is left"


async def test_a_damaged_record_of_plain_hosts_tells_the_person_what_to_do(tmp_path: Path) -> None:
    world = Hosts(tmp_path)
    scheduler = HostsScheduler(world.target)
    await scheduler.open()
    (tmp_path / "state" / "state.json").write_text("{")
    with pytest.raises(SchedulerError, match=r"state\.json is damaged .* put a copy of it back, then `outrider outbox") as caught:
        await scheduler.restart(RESTART)
    assert (caught.value.code, caught.value.again, world.calls("stop")) == ("damaged", False, [])


# -- what stands between the deliverer and a scheduler ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "outcome", "code"),
    [("sys.exit(0)", "accepted", "done"), ("print('gpu 3 is slow'); sys.exit(3)", "refused", "spare_unfit"),
     ("import time; time.sleep(9)", "refused", "spare_unfit")],
    ids=["fit", "unfit", "hangs"],
)  # fmt: skip
async def test_spare_is_checked_before_it_is_used(tmp_path: Path, script: str, outcome: str, code: str) -> None:
    world = FakeSlurm(tmp_path)
    scheduler = SlurmScheduler(SlurmTarget(name="slurm", rank_map_dir=str(tmp_path)), world)
    check = SpareCheck(
        command=(sys.executable, "-c", f"import sys; assert sys.argv[1] == 'n9'; {script}", "{node}"), timeout_seconds=0.5
    )
    sender = SchedulerSender(scheduler, (), 3, check)
    message = row("r", "job.restart.requested", job="j1", attempt=1, replace=[{"slot": 1, "from": "n2", "to": "n9"}])
    attempt = await sender.send(message, 0.0)
    assert (attempt.outcome, attempt.reason_code) == (outcome, code)
    assert world.restarts() == int(outcome == "accepted")
    if "gpu 3" in script:
        assert "gpu 3 is slow" in attempt.reason


async def test_types_that_are_no_matter_of_a_scheduler_are_accepted_and_do_nothing(tmp_path: Path) -> None:
    world = FakeSlurm(tmp_path)
    sender = SchedulerSender(SlurmScheduler(SlurmTarget(name="slurm"), world), (), 3, SpareCheck())
    assert (await sender.send(row("a", "agent.restart.requested", node="n1"), 0.0)).reason_code == "already"
    assert (await sender.send(replace_body(row("a"), "{"), 0.0)).reason_code == "strange_order"


def replace_body(message: Any, text: str) -> Any:
    import msgspec

    return msgspec.structs.replace(message, body=text)


# -- pure parts ------------------------------------------------------------------------------------------------------------


def test_a_slot_already_moved_stays_and_a_missing_spare_is_chosen_or_said() -> None:
    swap = (Replace(slot=1, from_="b", to="s"),)
    assert moved(["a", "b"], swap, []) == ["a", "s"]
    assert moved(["a", "s"], swap, []) == ["a", "s"]
    open_ = (Replace(slot=0, from_="a"), Replace(slot=1, from_="a"))
    assert moved(["a", "a", "b"], open_, ["b", "s"]) == ["s", "s", "b"], "both slots of a node go to one node"
    with pytest.raises(SchedulerError, match="no free node"):
        moved(["a", "b"], (Replace(slot=0, from_="a"),), ["b"])
    with pytest.raises(SchedulerError, match="no slot 7"):
        moved(["a"], (Replace(slot=7, from_="a", to="s"),), [])


def test_rank_map_file_and_environment_tell_the_same(tmp_path: Path) -> None:
    made = make_map("../evil job", 2, 5, ["a", "a", "b"])
    path = write_map(tmp_path, made)
    assert path.parent == tmp_path
    assert read_map(tmp_path, "../evil job") == made
    assert json.loads(path.read_text())["ranks"][2] == {"rank": 2, "slot": 2, "node": "b"}
    assert path.with_name(path.name.replace(".ranks.json", ".hosts")).read_text() == "a\na\nb\n"
    text = path.with_name(path.name.replace(".ranks.json", ".env")).read_text()
    read = dict(line.split("=", 1) for line in text.splitlines())
    assert read == {
        "OUTRIDER_JOB": "'../evil job'", "OUTRIDER_ATTEMPT": "2", "OUTRIDER_FENCE": "5", "WORLD_SIZE": "3", "MASTER_ADDR": "a",
    }  # fmt: skip
    environment = made.environment(1)
    assert made.common().items() <= environment.items()
    assert (environment["RANK"], environment["LOCAL_RANK"], environment["GROUP_RANK"], environment["MASTER_ADDR"]) == (
        "1",
        "1",
        "0",
        "a",
    )


@pytest.mark.parametrize(
    ("nodes", "slots", "exact", "says"),
    [
        (["n1", "n3"], (), False, True),  # n3 is to be left
        (["n1", "n9"], (), False, False),
        (["n1", "n8"], ("n1", "n9"), True, True),  # the stand-in before was lost as well
        (["n1", "n8"], ("n1", "n9"), False, False),  # Kubernetes places pods as it likes
        (["n1", "n9"], ("n1", "n9"), True, False),
        ([], ("n1", "n9"), True, False),  # nothing runs
    ],
)  # fmt: skip
def test_order_for_an_older_attempt_counts_where_something_is_not_where_it_should_be(nodes, slots, exact, says) -> None:
    swap = (Replace(slot=1, from_="n3", to="n9"),)
    assert amends(order(attempt=1, slots=slots, replace=swap), nodes, exact=exact) is says


def test_order_tells_where_the_ranks_were_before_the_restart() -> None:
    swap = (Replace(slot=1, from_="n2", to="n9"), Replace(slot=2, from_="n3"))
    assert told(order(slots=("n1", "n9", None), replace=swap)) == ["n1", "n2", "n3"]
    assert told(order(slots=(), replace=swap)) == []
    assert told(order(slots=("n1", None), replace=())) == [], "a slot without a node, and nobody says which it had"


async def test_job_that_slurm_requeued_by_itself_and_forgot_keeps_its_ranks_by_the_order(tmp_path: Path) -> None:
    world = FakeSlurm(tmp_path)
    scheduler = SlurmScheduler(SlurmTarget(name="slurm", rank_map_dir=str(tmp_path)), world)
    world.one = replace(world.one, states=frozenset({"PENDING"}), nodes=(), restarts=1)
    done = await scheduler.restart(
        order(job="j1", attempt=1, slots=("n3", "n9", "n1"), replace=(Replace(slot=1, from_="n2", to="n9"),))
    )
    assert done.detail["nodes"] == ["n3", "n9", "n1"]


@pytest.mark.parametrize("name_of", [file_name, map_name], ids=["file", "ConfigMap"])
def test_no_two_jobs_share_a_name_and_no_name_leads_out_or_is_too_long(name_of: Any) -> None:
    jobs = ["a/b", "a_b", "a b", "a-b", "A-b", "a.b", "a..b", ".a", "..", "../a", "-a", "a-", "", "é", "\ud800", "x" * 300,
            "x" * 301, "a\nb", "a\0b"]  # fmt: skip
    names = [name_of(job) for job in jobs]
    assert len(set(names)) == len(jobs)
    for name in names:
        assert re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", name)
        assert len(name) <= (200 if name_of is file_name else 253)
    assert name_of("train-7b").endswith("train-7b"), "a plain name stays as people know it"
    assert re.fullmatch(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", map_name("a..b"))


@pytest.mark.parametrize("trouble", ["a file in the way", "no map", "another job's"])
async def test_trouble_with_the_rank_maps_keeps_no_sick_node_in_service(tmp_path: Path, trouble: str) -> None:
    world, folder = FakeSlurm(tmp_path), tmp_path / "maps"
    if trouble == "a file in the way":
        folder.write_text("")
    else:
        folder.mkdir()
        (folder / "j1.ranks.json").write_text("{" if trouble == "no map" else '{"job": "j2"}')
    scheduler = SlurmScheduler(SlurmTarget(name="slurm", rank_map_dir=str(folder)), world)
    done = await scheduler.drain(order(node="n2"))
    assert done.status == "done"
    assert str(folder) in done.note
    if trouble == "a file in the way":
        with pytest.raises(SchedulerError) as caught:
            write_map(folder, make_map("j1", 1, 1, ["n1"]))
        assert (caught.value.code, caught.value.again) == ("unwritable", True)


@pytest.mark.parametrize(
    ("hosts", "names"),
    [("gpu[0-2,7]", ["gpu0", "gpu1", "gpu2", "gpu7"]), ("a,b[08-10]x,c", ["a", "b08x", "b09x", "b10x", "c"]), ("", [])],
)
def test_host_lists_are_expanded_in_order(hosts: str, names: list[str]) -> None:
    assert expand(hosts) == names


def test_answers_of_old_and_new_slurm_read_the_same() -> None:
    old = {"name": "g", "state": "idle", "state_flags": ["DRAIN"], "reason": "r", "partitions": ["p"]}
    new = {"name": "g", "state": ["IDLE", "DRAIN"], "reason": "r", "partitions": ["p"]}
    (line,) = read_lines(
        "NodeName=g Arch=x86 State=IDLE+DRAIN OS=Linux 6.1 #1 SMP Partitions=p Reason=r [root@2026-01-01T00:00:00]"
    )
    assert read_node(old) == read_node(new) == read_node(line)
    old_job = {
        "job_id": 7,
        "job_state": "PENDING",
        "restart_cnt": 1,
        "nodes": "",
        "name": "j",
        "priority": 0,
        "tasks_per_node": None,
    }
    new_job = {
        "job_id": 7,
        "job_state": ["PENDING"],
        "restart_cnt": {"set": True, "number": 1},
        "name": "j",
        "priority": {"set": True, "number": 0},
    }
    (line,) = read_lines(
        "JobId=7 JobName=j Priority=0 JobState=PENDING Restarts=1 NodeList=(null)"
        " NTasksPerN:B:S:C=0:0:*:* Comment=outrider fence=3 x"
    )
    assert read_job(old_job) == read_job(new_job)
    assert replace(read_job(line), comment="") == read_job(old_job)
    assert fence_of(read_job(line).comment) == 3


def test_reason_is_one_bounded_line_from_which_the_fence_reads_back() -> None:
    text = reason_of(order(12, node="n2", reason=None))
    assert fence_of(text) == 12
    assert "\n" not in reason_of(Data(fence=1, explanation="a\nb" * 500))
    assert len(reason_of(Data(fence=1, explanation="a\nb" * 500))) <= 200
    assert fence_of("new disk") is None
    assert fence_of("outrider fence=x") is None


def a_job(job_id: int, state: str, *nodes: str, restarts: int = 0, comment: str = "", requeue: bool = True) -> SlurmJob:
    return SlurmJob(
        job_id=job_id, name="j1", states=frozenset({state}), nodes=nodes, restarts=restarts, comment=comment, partition="train",
        tasks_per_node=1, tasks=3, held=False, requeue=requeue,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("others", "meant"),
    [
        ([a_job(8, "PENDING")], 7),
        ([a_job(6, "CANCELLED"), a_job(9, "COMPLETED")], 7),
        ([a_job(8, "RUNNING", "n5", "n6")], 7),
        ([a_job(8, "RUNNING", "n2")], None),
    ],
    ids=["a successor in the queue", "those before it", "another one elsewhere", "another one on its nodes"],
)
async def test_of_jobs_with_one_name_the_one_that_the_order_means_is_restarted_or_none(tmp_path: Path, others, meant) -> None:
    world = FakeSlurm(tmp_path)
    touched: set[int] = set()

    async def jobs() -> list[SlurmJob]:
        return [world.one, *others]

    async def command(*words: str) -> None:
        touched.add(int(words[1]))
        await FakeSlurm.command(world, *words)

    world.jobs, world.command = jobs, command
    scheduler = SlurmScheduler(SlurmTarget(name="slurm", rank_map_dir=str(tmp_path)), world)
    if meant is None:
        with pytest.raises(SchedulerError) as caught:
            await scheduler.restart(RESTART)
        assert (caught.value.code, caught.value.again) == ("ambiguous", False)
        assert "7, 8" in caught.value.reason
    else:
        assert (await scheduler.restart(RESTART)).status == "done"
    assert touched == ({meant} if meant else set())


def test_a_job_that_slurm_requeued_is_told_from_its_successor() -> None:
    back, mark = a_job(7, "PENDING", restarts=1), a_job(7, "PENDING", comment="outrider fence=4 incident=i0 released")
    assert that_one([back, a_job(8, "PENDING")], {"n1"}).job_id == 7
    assert that_one([mark, a_job(8, "PENDING", restarts=1)], {"n1"}).job_id == 7
    assert that_one([a_job(5, "COMPLETED"), a_job(6, "TIMEOUT")], set()).job_id == 6
    failed = a_job(6, "NODE_FAIL", "n1", restarts=1, comment="outrider fence=4 incident=i0 released")
    assert that_one([failed, a_job(7, "PENDING")], {"n1"}).job_id == 7, "that one is over, and another one was begun"
    assert that_one([failed, a_job(5, "FAILED")], {"n1"}).job_id == 6


async def test_job_that_slurm_may_not_requeue_is_left_alone_and_said(tmp_path: Path) -> None:
    world = FakeSlurm(tmp_path)
    world.one = a_job(7, "RUNNING", *NODES[:3], requeue=False)
    scheduler = SlurmScheduler(SlurmTarget(name="slurm", rank_map_dir=str(tmp_path)), world)
    with pytest.raises(SchedulerError) as caught:
        await scheduler.restart(RESTART)
    assert (caught.value.code, caught.value.again) == ("not_supported", False)
    assert "--no-requeue" in caught.value.reason
    for record in ({"requeue": False}, {"requeue": {"set": True, "number": 0}}, read_lines("JobId=7 JobName=j1 Requeue=0")[0]):
        assert not read_job(record).requeue
    assert read_job({"job_id": 7}).requeue


@pytest.mark.parametrize("thing", [".lock", "state.json"])
async def test_a_record_of_plain_hosts_that_cannot_be_written_is_tried_again(tmp_path: Path, thing: str) -> None:
    world = Hosts(tmp_path)
    scheduler = HostsScheduler(world.target)
    await scheduler.open()
    (tmp_path / "state" / thing).mkdir()
    for call in (scheduler.drain(order(node="n2")), scheduler.restart(RESTART)):
        with pytest.raises(SchedulerError) as caught:
            await call
        assert caught.value.again
        assert str(tmp_path / "state" / thing) in caught.value.reason
    assert not world.calls("st"), "nothing is ended before it is written down"
