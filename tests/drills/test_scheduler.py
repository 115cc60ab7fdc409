"""The local scheduler keeps the webhook contract: signature, repeated id, old fence, old attempt."""

import base64
import json
import time

import pytest
from aiohttp.test_utils import TestClient, TestServer

from alerts.webhooks import signed_headers
from drills.cluster.jobs import JobSpec
from drills.cluster.scheduler import NodeState, Scheduler

SECRET = base64.b64encode(b"k" * 24).decode()


class Pipe:
    """Stands for a launcher's stream: keeps what was written."""

    def __init__(self) -> None:
        self.written: list[dict] = []

    def write(self, data: bytes) -> None:
        self.written.append(json.loads(data))

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        pass


@pytest.fixture
async def scheduler(tmp_path):
    made = Scheduler("token", (SECRET,), lambda _node, attempt: 29000 + attempt)
    for name in ("n1", "n2", "n3"):
        made.nodes[name] = NodeState(name, writer=Pipe())
    spec = JobSpec(job="j1", snapshot_root=str(tmp_path), address_of=lambda node: node, agent_socket_of=lambda node: node)
    made.submit(spec, ["n1", "n2"])
    yield made
    await made.stop()


@pytest.fixture
async def client(scheduler):
    async with TestClient(TestServer(scheduler.application())) as made:
        yield made


async def send(client, kind: str, data: dict, message_id: str = "m1", secret: str = SECRET) -> tuple[int, dict]:
    body = json.dumps({"type": kind, "timestamp": "now", "data": data})
    answer = await client.post("/webhooks", data=body, headers=signed_headers((secret,), message_id, body, time.time()))
    return answer.status, await answer.json()


RESTART = {"job": "j1", "fence": 5, "attempt": 1, "replace": [{"slot": 1, "from": "n2", "to": "n3"}]}


async def settle(scheduler: Scheduler) -> None:
    for task in list(scheduler._tasks):
        await task


async def test_restart_puts_the_spare_into_the_lost_slot_and_keeps_ranks(client, scheduler) -> None:
    assert await send(client, "job.restart.requested", RESTART) == (200, {"status": "done"})
    await settle(scheduler)
    job = scheduler.jobs["j1"]
    assert (job.slots, job.attempt, job.fence) == (["n1", "n3"], 2, 5)
    order = scheduler.nodes["n3"].writer.written[-1]["start"]
    assert order["ranks"][0]["env"]["RANK"] == "1"
    assert order["env"]["MASTER_PORT"] == "29002", "a new store and port for each attempt"
    assert order["env"]["OUTRIDER_FENCE"] == "5"


@pytest.mark.parametrize(
    ("change", "status"),
    [({"fence": 0}, "old fence"), ({"attempt": 7}, "old attempt"), ({"dry_run": True}, "dry_run")],
)
async def test_restart_that_is_old_or_dry_changes_nothing(client, scheduler, change, status) -> None:
    assert await send(client, "job.restart.requested", RESTART | change) == (200, {"status": status})
    assert scheduler.jobs["j1"].attempt == 1


async def test_repeated_id_is_dropped(client, scheduler) -> None:
    await send(client, "job.restart.requested", RESTART)
    assert await send(client, "job.restart.requested", RESTART | {"fence": 9, "attempt": 2}) == (200, {"status": "repeated"})
    await settle(scheduler)
    assert scheduler.jobs["j1"].attempt == 2


@pytest.mark.parametrize("spare", ["n1", "n9", None], ids=["in use", "unknown", "none"])
async def test_slot_is_never_given_to_a_node_that_cannot_hold_it(client, scheduler, spare) -> None:
    await send(client, "job.restart.requested", RESTART | {"replace": [{"slot": 1, "from": "n2", "to": spare}]})
    await settle(scheduler)
    assert scheduler.jobs["j1"].attempt == 1
    assert scheduler.events[-1][1] == "restart_failed"


async def test_quarantined_node_is_told_to_end_its_ranks_and_takes_no_slot(client, scheduler) -> None:
    await send(client, "node.quarantine.requested", {"node": "n3", "fence": 4})
    assert scheduler.nodes["n3"].writer.written[-1] == {"kill": {"job": "j1"}}
    await send(client, "job.restart.requested", RESTART, "m2")
    await settle(scheduler)
    assert scheduler.jobs["j1"].slots == ["n1", "n2"]


async def test_unsigned_and_malformed_messages_are_refused(client) -> None:
    status, _ = await send(client, "job.restart.requested", RESTART, secret=base64.b64encode(b"x" * 24).decode())
    assert status == 401
    assert (await send(client, "job.restart.requested", {"job": "nobody"}))[0] == 422
