"""`attach`, `step`, `restore` in one process, with a hand-written agent or without one; what goes wrong never stops training."""

import contextlib
import json
import logging
import os
import signal
import socket
import sys
import threading
import time
import warnings

import pytest
import torch
from sdk_fakes import FakeAgent, until

import outrider
from outrider.sdk import log
from outrider.sdk.keeper import MovingError
from outrider.sdk.settings import Limits, Place, Plan
from outrider.snapshots import RestoreError, StaleFenceError, newest_step, raise_fence
from outrider.snapshots.shard import read_tree

FAST = Limits(poll=0.005, stall_seconds=0.2, hold=1.0, reconnect=0.05, patience=0.2, publish=8.0, own_freeze=60.0)


class Reader:
    """A data loader that only counts."""

    def __init__(self) -> None:
        self.position = 0

    def state_dict(self):
        return {"position": self.position}

    def load_state_dict(self, state):
        self.position = state["position"]


class Job:
    """A tiny job: `train(n)` makes n steps."""

    def __init__(self, place, *, restore=False, seed=3, buffers=False, **plan) -> None:
        torch.manual_seed(0)
        layers = [torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1)]
        if buffers:
            layers.insert(1, torch.nn.BatchNorm1d(8))
        self.model = torch.nn.Sequential(*layers)
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 2, 0.5)
        self.data = Reader()
        self.run = outrider.attach(
            model=self.model, optimizer=self.optimizer, scheduler=self.scheduler, data=self.data, place=place,
            plan=Plan(seed=seed, limits=FAST, **plan),
        )  # fmt: skip
        self.restored = self.run.restore() if restore else None

    def train(self, steps, inside=None):
        losses = []
        for _ in range(steps):
            self.data.position += 1
            inputs = torch.rand(6, 4)
            with self.run.step() as step:
                self.optimizer.zero_grad()
                loss = self.model(inputs).square().mean()
                loss.backward()
                if inside is not None:
                    inside(step)
                self.optimizer.step()
                self.scheduler.step()
                step.report(loss=loss.item())
            losses.append(loss.item().hex())
        return losses


@pytest.fixture(autouse=True)
def fresh_log():
    log._TOLD.clear()


@pytest.fixture
def job():
    made = []

    def make(*args, **kwargs):
        made.append(Job.__new__(Job))
        made[-1].__init__(*args, **kwargs)
        return made[-1]

    yield make
    for one in made:
        one.run.close()


@pytest.fixture
def agent(tmp_path):
    fake = FakeAgent(tmp_path / "agent").start()
    yield fake
    fake.stop()


def place(tmp_path, agent=None, **fields):
    return Place(job="j", root=tmp_path / "snapshots", agent=agent.socket if agent else None, **fields)


def test_without_agent_or_snapshots_it_just_trains(job):
    one = job(Place())
    one.train(3)
    assert one.run.finished == 2
    assert one.run.restore.__doc__


def test_the_agent_sees_steps_phases_and_figures(job, agent, tmp_path):
    one = job(place(tmp_path, agent))
    until(lambda: agent.hellos)
    one.train(3, lambda step: step.report(compute_s=0.25, loss=-1.0))
    reader = agent.page(0)
    until(lambda: reader.trainer().step == 2)
    assert reader.trainer().compute_s == 0.25, "a second report keeps what it does not name, and replaces what it names"
    cell = reader.trainer()
    assert (cell.phase, cell.open, cell.motion & 1) == ("train", -1, 0)
    assert cell.loss > 0 and cell.lr == pytest.approx(0.0005) and cell.data_s > 0
    one.run.phase("eval")
    assert reader.trainer().phase == "eval"
    one.train(1)
    assert reader.trainer().phase == "train"
    one.run.close()
    assert (reader.trainer().phase, reader.side().farewell) == ("end", "end")
    assert agent.hellos[0] | {"pid": 0, "copy_bytes": 0} == {
        "hello": "rank", "job": "j", "attempt": 1, "slot": 0, "rank": 0, "world": 1, "fence": 0, "pid": 0, "copy_bytes": 0,
    }  # fmt: skip


def test_a_copy_is_made_at_the_agents_word_and_dropped(job, agent, tmp_path):
    one = job(place(tmp_path, agent))
    one.train(3)
    until(lambda: agent.hellos)
    number = agent.command(0, "copy", incident="i1")
    side = until(lambda: (cell := agent.page(0).side()).ack == number and cell)
    assert side.ack_state == "done" and 2 in side.labels
    assert until(lambda: agent.told("snapshot", state="staged"))[0]["value"] == 2
    number = agent.command(0, "drop")
    until(lambda: agent.page(0).side().ack == number)
    assert agent.area(0).whole() == []


def test_a_published_copy_is_the_state_of_the_last_finished_step(job, agent, tmp_path):
    one = job(place(tmp_path, agent))
    one.train(4)
    until(lambda: agent.hellos)
    number = agent.command(0, "publish", fence=7, incident="i1", ranks=[0])
    until(lambda: (cell := agent.page(0).side()).ack == number and cell.ack_state == "done")
    committed = until(lambda: agent.told("snapshot", state="committed"))[0]
    assert committed["value"] == 3 and committed["data"]["fence"] == 7 and committed["data"]["incident"] == "i1"
    folder = tmp_path / "snapshots/j/step-00000003"
    manifest = json.loads((folder / "MANIFEST.json").read_text())
    assert (manifest["cause"], manifest["incident"], manifest["fence"]) == ("emergency", "i1", 7)
    assert (manifest["data"], manifest["scheduler_step"]) == ({"position": 4}, 4)
    assert manifest["rng_kinds"] == ["numpy", "python", "torch"]
    tree = read_tree(folder / manifest["shards"][0]["file"])
    for name, value in one.model.state_dict().items():
        assert torch.equal(tree["model"]["main"][name], value)


def test_a_copy_taken_in_the_middle_of_a_step_is_of_the_step_before(job, agent, tmp_path):
    one = job(place(tmp_path, agent))
    one.train(3)
    before = {name: value.clone() for name, value in one.model.state_dict().items()}
    until(lambda: agent.hellos)

    def publish(_step):
        one.run.phase("train")
        number = agent.command(0, "publish", fence=7)
        until(lambda: (cell := agent.page(0).side()).ack == number and cell.ack_state == "done")

    one.train(1, inside=publish)
    manifest = json.loads((tmp_path / "snapshots/j/step-00000002/MANIFEST.json").read_text())
    assert manifest["data"] == {"position": 3}
    tree = read_tree(tmp_path / "snapshots/j/step-00000002" / manifest["shards"][0]["file"])
    assert all(torch.equal(tree["model"]["main"][name], value) for name, value in before.items())


def test_no_copy_is_made_while_the_optimizer_moves(job, tmp_path):
    one = job(place(tmp_path))
    one.train(2)
    one.run._writer.moving()
    with pytest.raises(outrider.snapshots.SnapshotError, match="kept moving"):
        one.run.keeper.take("test", seconds=0.05)
    one.run._writer.motion += 1
    assert one.run.keeper.take("test", seconds=0.05).step == 1


def test_a_copy_is_made_again_if_the_state_moved_meanwhile(job, tmp_path):
    one = job(place(tmp_path))
    one.train(2)
    device, copies = one.run.keeper._device, []

    class MovesOnce:
        def settled(self):
            return True

        def prepare(self, area):
            return None

        def reading(self):
            return contextlib.nullcontext()

        def copy(self, pairs):
            copies.append(1)
            device.copy(pairs)
            if len(copies) == 1:
                one.run._writer.motion += 2

    one.run.keeper._device = MovesOnce()
    assert one.run.keeper.take("test", seconds=1.0).step == 1
    assert len(copies) == 2


def test_a_state_too_big_to_be_copied_beside_the_training_is_copied_by_it(job, agent, tmp_path):
    one = job(place(tmp_path, agent))
    one.train(2)
    until(lambda: agent.hellos)
    take = one.run.keeper.take

    def too_slow_beside(cause, *, seconds):
        if threading.current_thread() is not threading.main_thread():
            raise MovingError("too fast")
        return take(cause, seconds=seconds)

    one.run.keeper.take = too_slow_beside
    number = agent.command(0, "copy")
    while (cell := agent.page(0).side()).ack != number or cell.ack_state != "done":
        one.train(1)
    assert agent.area(0).whole()[0].cause == "copy"


def test_a_stall_makes_a_copy_by_itself_and_only_in_training(job, agent, tmp_path):
    one = job(place(tmp_path, agent))
    one.train(5)
    until(lambda: agent.hellos)
    one.run.phase("eval")
    time.sleep(0.3)
    assert not agent.told("snapshot", state="staged")
    one.run.phase("train")
    assert until(lambda: agent.told("snapshot", state="staged", cause="stall"))[0]["value"] == 4
    assert agent.page(0).side().situation == "stalled"
    one.train(1)
    until(lambda: agent.page(0).side().situation == "running")


def _break(one, error):
    with pytest.raises(type(error)), one.run.step():
        raise error


def test_a_rank_that_raises_copies_tells_and_stays_until_it_is_told_to_publish(job, agent, tmp_path):
    one = job(place(tmp_path, agent, world=2))
    one.train(3)
    until(lambda: agent.hellos)
    error = RuntimeError("[/gloo/transport/tcp/pair.cc:1] Connection closed by peer [127.0.0.4]:14547")
    thread = threading.Thread(target=_break, args=(one, error))
    thread.start()
    told = until(lambda: agent.told("collective_error"))[0]
    assert told["data"] == {"library": "gloo", "peer": "127.0.0.4", "port": 14547 if sys.byteorder == "big" else 54072, "step": 3}
    assert "Connection closed" in told["text"]
    assert until(lambda: agent.told("snapshot", state="staged", cause="exception"))
    assert thread.is_alive() and agent.page(0).side().situation == "exception"
    agent.command(0, "publish", fence=7, ranks=[0])
    thread.join(5)
    assert not thread.is_alive()
    assert newest_step(tmp_path / "snapshots", "j") == 2


def test_a_forked_child_does_not_speak_for_its_parent(job, agent, tmp_path):
    """A worker of a data loader inherits the run; its own SIGTERM and its own end are not the rank's."""
    one = job(place(tmp_path, agent))
    one.train(3)
    until(lambda: agent.hellos)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        one.run.close()
        os.kill(os.getpid(), signal.SIGTERM)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGTERM
    one.train(1)
    time.sleep(0.05)
    assert agent.page(0).side().situation == "running" and agent.page(0).trainer().phase == "train"


def test_a_rank_that_raises_and_hears_nothing_saves_on_its_own_account(job, agent, tmp_path):
    one = job(place(tmp_path, agent, fence=4))
    one.train(3)
    until(lambda: agent.hellos)
    began = time.monotonic()
    _break(one, RuntimeError("NCCL error: remote process exited"))
    assert time.monotonic() - began >= FAST.hold
    manifest = json.loads((tmp_path / "snapshots/j/step-00000002/MANIFEST.json").read_text())
    assert (manifest["fence"], manifest["cause"]) == (4, "emergency")


def test_a_bug_in_the_program_is_not_held_up_and_does_not_become_a_snapshot(job, agent, tmp_path):
    one = job(place(tmp_path, agent))
    one.train(3)
    until(lambda: agent.hellos)
    began = time.monotonic()
    _break(one, ValueError("loss is NaN"))
    assert time.monotonic() - began < FAST.hold
    assert newest_step(tmp_path / "snapshots", "j") is None
    assert not agent.told("collective_error")


@pytest.mark.parametrize("buffers", [False, True], ids=["plain", "batch-norm"])
def test_a_resumed_run_goes_on_bit_for_bit(job, tmp_path, buffers):
    whole = job(Place(), buffers=buffers)
    losses = whole.train(12)
    first = job(place(tmp_path), every_steps=5, buffers=buffers)
    assert first.train(7) == losses[:7]
    first.run.close()
    raise_fence(tmp_path / "snapshots", "j", 3)
    second = job(place(tmp_path, attempt=2, fence=3), restore=True, buffers=buffers)
    assert (second.restored, second.data.position, second.run.next_step) == (4, 5, 5)
    assert second.train(7) == losses[5:]
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, second.model.state_dict()[name])


def test_batch_statistics_are_those_of_the_finished_step(job, agent, tmp_path):
    """Buffers move in the forward pass, long before the optimizer's mark."""
    one = job(place(tmp_path, agent), buffers=True)
    one.train(3)
    before = one.model[1].running_mean.clone()
    until(lambda: agent.hellos)

    def publish(_step):
        number = agent.command(0, "publish", fence=7)
        until(lambda: (cell := agent.page(0).side()).ack == number and cell.ack_state == "done")

    one.train(1, inside=publish)
    tree = read_tree(tmp_path / "snapshots/j/step-00000002/slot-00000.f7.safetensors")
    assert torch.equal(tree["model"]["main"]["1.running_mean"], before)


def test_without_reseeding_the_random_state_is_saved_and_put_back(job, tmp_path):
    torch.manual_seed(5)
    whole = job(Place(), reseed=False)
    losses = whole.train(8)
    first = job(place(tmp_path), every_steps=5, reseed=False)
    assert first.train(6) == losses[:6]
    first.run.close()
    second = job(place(tmp_path, attempt=2), restore=True, reseed=False)
    assert second.train(3) == losses[5:]


def _saved(job, tmp_path, **fields):
    one = job(place(tmp_path, **fields), every_steps=2)
    for _ in range(2):
        one.train(2)
        until(lambda: not one.run.publisher.busy())
    one.run.close()


def test_nothing_to_restore_is_no_error(job, tmp_path):
    assert job(place(tmp_path), restore=True).restored is None


@pytest.mark.parametrize(
    ("fields", "plan", "words"),
    [
        ({"world": 2}, {}, "world_size is 1, here 2"),
        ({"rank": 1}, {}, "slot 0 was rank 0, here 1"),
        ({}, {"seed": 9}, "seed"),
        ({}, {"reseed": False}, "reseed"),
        ({}, {"shards": 2}, "shards"),
    ],
    ids=["world", "rank", "seed", "reseed", "shards"],
)
def test_a_snapshot_of_another_shape_of_job_is_refused(job, tmp_path, fields, plan, words):
    _saved(job, tmp_path)
    with pytest.raises(RestoreError, match=words):
        job(place(tmp_path, **fields), restore=True, **plan)


def test_another_thread_count_is_refused(job, tmp_path):
    _saved(job, tmp_path)
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        with pytest.raises(RestoreError, match="threads"):
            job(place(tmp_path), restore=True)
    finally:
        torch.set_num_threads(threads)


def test_a_model_that_does_not_fit_is_refused_in_one_line(job, tmp_path):
    _saved(job, tmp_path)
    with pytest.raises(RestoreError, match="model does not fit") as caught:
        job(place(tmp_path), restore=True, buffers=True)
    assert "\n" not in str(caught.value)


def test_a_damaged_snapshot_gives_way_to_the_one_before(job, agent, tmp_path):
    _saved(job, tmp_path)
    shard = tmp_path / "snapshots/j/step-00000003/slot-00000.f0.safetensors"
    body = bytearray(shard.read_bytes())
    body[-1] ^= 1
    shard.write_bytes(body)
    assert job(place(tmp_path, agent), restore=True).restored == 1
    assert until(lambda: agent.told("snapshot", state="failed", cause="restore"))[0]["value"] == 3
    assert until(lambda: agent.told("snapshot", state="restored"))[0]["value"] == 1


def test_if_all_are_damaged_it_says_so_and_does_not_begin_anew(job, tmp_path):
    _saved(job, tmp_path)
    for shard in tmp_path.glob("snapshots/j/*/*.safetensors"):
        shard.write_bytes(shard.read_bytes()[:-10])
    with pytest.raises(RestoreError, match="no snapshot is whole"):
        job(place(tmp_path), restore=True)


def test_an_attempt_that_was_superseded_may_not_restore(job, tmp_path):
    _saved(job, tmp_path)
    raise_fence(tmp_path / "snapshots", "j", 9)
    with pytest.raises(StaleFenceError):
        job(place(tmp_path, fence=8), restore=True)


def test_a_busy_or_broken_storage_never_stops_the_training(job, tmp_path, caplog):
    (tmp_path / "snapshots").write_text("a file where the folder should be")
    with caplog.at_level(logging.WARNING, "outrider"):
        one = job(place(tmp_path), every_steps=1)
        one.train(5)
        one.run.close()
    assert one.run.finished == 4
    assert len([record for record in caplog.records if "failed" in record.message]) == 1


def test_a_state_that_cannot_be_written_never_stops_the_training(job, tmp_path, caplog):
    one = job(place(tmp_path), every_steps=1)
    one.data.state_dict = lambda: {"position": object()}
    with caplog.at_level(logging.WARNING, "outrider"):
        one.train(3)
    assert one.run.finished == 2
    assert "cannot be saved" in caplog.text


def test_data_whose_position_cannot_be_had_never_stops_the_training(job, caplog):
    one = job(Place())
    one.data.state_dict = lambda: 1 / 0
    with caplog.at_level(logging.WARNING, "outrider"):
        one.train(3)
    assert one.run.finished == 2
    assert caplog.text.count("position") == 1


def test_an_agent_that_comes_late_goes_away_and_comes_back_is_found_again(job, tmp_path):
    fake = FakeAgent(tmp_path / "agent")
    one = job(place(tmp_path, fake))
    one.train(2)
    fake.start()
    until(lambda: fake.hellos)
    until(lambda: fake.page(0).trainer().step == 1)
    fake.stop()
    one.train(1)
    assert fake.page(0).trainer().step == 2
    fake.start()
    until(lambda: len(fake.hellos) >= 2)
    agent_number = fake.command(0, "copy")
    until(lambda: fake.page(0).side().ack == agent_number)
    fake.stop()


def test_an_agent_that_refuses_is_told_once_and_asked_again(job, agent, tmp_path, caplog):
    agent.refusal = "no room"
    with caplog.at_level(logging.WARNING, "outrider"):
        one = job(place(tmp_path, agent))
        one.train(2)
        until(lambda: "no room" in caplog.text)
        agent.refusal = ""
        until(lambda: agent.hellos)
    assert caplog.text.count("no room") == 1


def test_a_state_that_outgrows_its_area_asks_for_a_bigger_one(job, agent, tmp_path):
    one = job(place(tmp_path, agent))
    one.train(2)
    until(lambda: agent.hellos)
    one.run._subject.others["extra"]["big"] = torch.nn.Linear(1000, 1000)
    agent.command(0, "copy")
    until(lambda: agent.told("snapshot", state="failed"))
    one.run._side._grow_at = 0.0
    until(lambda: len(agent.hellos) == 2)
    until(lambda: agent.page(0).side().pid)
    number = agent.command(0, "copy")
    until(lambda: (cell := agent.page(0).side()).ack == number and cell.ack_state == "done")
    assert agent.area(0).whole()[0].length > 4_000_000


def test_an_order_to_leave_ends_the_process_with_a_farewell(job, agent, tmp_path):
    one = job(place(tmp_path, agent))
    codes = []
    one.run._side._end_process = codes.append
    one.train(2)
    until(lambda: agent.hellos)
    agent.command(0, "exit", incident="i1")
    assert until(lambda: codes) == [75]
    side = agent.page(0).side()
    assert (side.farewell, side.exit_code) == ("told", 75)


def test_an_order_under_a_fence_that_was_superseded_is_refused_and_the_rank_goes(job, agent, tmp_path):
    one = job(place(tmp_path, agent, fence=3))
    codes = []
    one.run._side._end_process = codes.append
    one.train(2)
    until(lambda: agent.hellos)
    raise_fence(tmp_path / "snapshots", "j", 9)
    agent.command(0, "publish", fence=0)
    assert until(lambda: codes)[0] == 77
    until(lambda: agent.told("snapshot", state="failed", reason="fenced"))
    assert newest_step(tmp_path / "snapshots", "j") is None


def test_an_agent_that_does_not_listen_does_not_hold_up_the_end(job, tmp_path):
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(tmp_path / "agent.sock"))
        deaf.listen()
        one = job(Place(job="j", agent=str(tmp_path / "agent.sock")))
        one.train(2)
        one.run._side.snapshot_event("begin", 1)
        began = time.monotonic()
        one.run.close()
        assert time.monotonic() - began < 3
        assert not one.run._side.is_alive()


def test_snapshots_by_the_clock(job, agent, tmp_path):
    one = job(place(tmp_path, agent), every_seconds=0.05)
    until(lambda: one.train(1) and newest_step(tmp_path / "snapshots", "j") is not None)
    one.run.close()
    assert agent.told("snapshot", state="committed", cause="periodic")


def test_state_spread_over_two_ranks_is_saved_and_restored_shard_by_shard(job, tmp_path):
    spread = {"world": 2, "attempt": 1}
    losses = [job(Place(slot=slot, rank=slot, **spread), shards=2).train(8) for slot in (0, 1)]
    for slot in (0, 1):
        assert newest_step(tmp_path / "snapshots", "j") is None, "half a snapshot is none"
        one = job(place(tmp_path, slot=slot, rank=slot, **spread), shards=2, every_steps=4)
        one.train(5)
        until(lambda slot=slot: list(tmp_path.glob(f"snapshots/j/*/slot-0000{slot}.f0.json")))
    until(lambda: newest_step(tmp_path / "snapshots", "j") == 3)
    for slot in (0, 1):
        again = job(place(tmp_path, slot=slot, rank=slot, world=2, attempt=2), shards=2, restore=True)
        assert again.train(4) == losses[slot][4:]
