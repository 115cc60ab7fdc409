"""The drill's job in real processes: killed, frozen, terminated, and brought back bit for bit."""

import json
import os
import random
import signal
import time

import pytest
from job_stage import STEPS, WORLD
from sdk_fakes import until

from outrider.snapshots import newest_step, raise_fence

pytestmark = pytest.mark.real

ALL = set(range(WORLD))
LAST_CALL = 20.0


def _training(agent, step):
    """Waits until every rank has finished `step`."""
    until(lambda: len({hello["slot"] for hello in agent.hellos}) == WORLD)
    pages = [agent.page(slot) for slot in range(WORLD)]
    until(lambda: all((cell := page.trainer()) and cell.step >= step for page in pages), LAST_CALL)


def _publish(agent, survivors, fence):
    for slot in survivors:
        agent.command(slot, "publish", fence=fence, incident="i1", ranks=survivors)
    told = until(lambda: agent.told("snapshot", state="committed", fence=fence), LAST_CALL)
    return told[0]["value"]


def _dismiss(agent, stage, pids, survivors):
    for slot in survivors:
        agent.command(slot, "exit", incident="i1")
    return stage.wait([pids[slot] for slot in survivors])


def _resume(stage, folder, fence, agent):
    raise_fence(folder / "snapshots", "j", fence)
    assert stage.wait(stage.start(folder, attempt=2, fence=fence, agent=agent.socket)) == [0] * WORLD


def _all_equal(stage, folder, undisturbed, first_again):
    """A rank may die between the end of a step and its record of it; nothing after the restart may be missing."""
    facts = stage.facts(folder)
    assert facts == {key: value for key, value in undisturbed.items() if key in facts}
    assert not [key for key in undisturbed.keys() - facts.keys() if key[1] == "digest" or key[1] >= first_again]


def _same(stage, folder, undisturbed, first_again):
    """Every step after the restart, the samples it read, and the parameters at the end."""
    assert min(stage.steps(folder, 2)[0]) == first_again
    _all_equal(stage, folder, undisturbed, first_again)
    finished = set.intersection(*stage.steps(folder, 1)) if (folder / "records").exists() else set()
    assert len([step for step in finished if step >= first_again]) <= 1, "more than one finished step was run again"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_job_whose_rank_was_killed_goes_on_bit_for_bit(stage, agent, undisturbed, tmp_path, seed):
    chance = random.Random(seed)
    victim = chance.randrange(WORLD)
    pids = stage.start(tmp_path, agent=agent.socket)
    _training(agent, chance.randrange(3, STEPS - 8))
    time.sleep(chance.uniform(0, 0.08))
    os.kill(pids[victim], signal.SIGKILL)
    assert stage.wait([pids[victim]]) == [-signal.SIGKILL]
    told = until(lambda: agent.told("collective_error"), LAST_CALL)[0]
    assert (told["data"]["peer"], told["data"]["peer_rank"]) == (f"127.0.0.{victim + 2}", victim)
    survivors = sorted(ALL - {victim})
    saved = _publish(agent, survivors, fence=7)
    _dismiss(agent, stage, pids, survivors)
    manifest = json.loads((tmp_path / f"snapshots/j/step-{saved:08d}/MANIFEST.json").read_text())
    assert manifest["shards"][victim]["state"] == "replica_of" and manifest["replicas_agree"]
    _resume(stage, tmp_path, 8, agent)
    _same(stage, tmp_path, undisturbed, saved + 1)


def test_survivors_of_a_freeze_copy_while_they_hang_and_the_frozen_rank_can_harm_nothing(stage, agent, undisturbed, tmp_path):
    pids = stage.start(tmp_path, agent=agent.socket)
    _training(agent, 9)
    frozen, survivors = 1, [0, 2, 3]
    os.kill(pids[frozen], signal.SIGSTOP)
    began = time.monotonic()
    until(lambda: {event["slot"] for event in agent.told("snapshot", state="staged", cause="stall")} == set(survivors), LAST_CALL)
    assert time.monotonic() - began > 1.9
    assert not agent.told("collective_error"), "their main threads hang, nobody raised"
    assert [agent.page(slot).side().situation for slot in survivors] == ["stalled"] * 3
    saved = _publish(agent, survivors, fence=7)
    assert _dismiss(agent, stage, pids, survivors) == [75] * 3
    woken = agent.page(frozen)
    _resume(stage, tmp_path, 8, agent)
    before = sorted(path.relative_to(tmp_path) for path in tmp_path.glob("snapshots/j/*/*"))
    os.kill(pids[frozen], signal.SIGCONT)
    assert stage.wait([pids[frozen]]) == [77]
    assert woken.side().farewell == "fenced"
    assert agent.told("snapshot", state="failed", reason="fenced")
    assert sorted(path.relative_to(tmp_path) for path in tmp_path.glob("snapshots/j/*/*")) == before
    _same(stage, tmp_path, undisturbed, saved + 1)


def test_ranks_that_hang_obey_sigterm_and_save_on_their_own_account(stage, undisturbed, tmp_path, agent):
    pids = stage.start(tmp_path)
    records = tmp_path / "records/rank-0.attempt-1.jsonl"
    until(lambda: records.exists() and records.read_text().count("\n") > 6, LAST_CALL)
    os.kill(pids[2], signal.SIGSTOP)
    time.sleep(0.3)
    for slot in (0, 1, 3):
        os.kill(pids[slot], signal.SIGTERM)
    assert set(stage.wait([pids[slot] for slot in (0, 1, 3)])) <= {143, 1}
    os.kill(pids[2], signal.SIGKILL)
    stage.wait([pids[2]])
    saved = newest_step(tmp_path / "snapshots", "j")
    assert saved is not None
    _resume(stage, tmp_path, 8, agent)
    _same(stage, tmp_path, undisturbed, saved + 1)


def test_the_safety_net_serves_when_all_ranks_die_at_once(stage, undisturbed, tmp_path, agent):
    pids = stage.start(tmp_path, agent=agent.socket, DRILL_SAVE_EVERY=5)
    _training(agent, 12)
    until(lambda: agent.told("snapshot", state="committed", cause="periodic"), LAST_CALL)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    stage.wait(pids)
    saved = newest_step(tmp_path / "snapshots", "j")
    _resume(stage, tmp_path, 8, agent)
    assert min(stage.steps(tmp_path, 2)[3]) == saved + 1
    _all_equal(stage, tmp_path, undisturbed, saved + 1)


def test_a_damaged_newest_snapshot_is_passed_over_by_all_ranks_together(stage, undisturbed, tmp_path, agent):
    assert stage.wait(stage.start(tmp_path, agent=agent.socket, DRILL_SAVE_EVERY=10, DRILL_STEPS=20)) == [0] * WORLD
    shard = tmp_path / "snapshots/j/step-00000019/slot-00000.f0.safetensors"
    shard.write_bytes(shard.read_bytes()[:-7])
    _resume(stage, tmp_path, 8, agent)
    assert [min(steps) for steps in stage.steps(tmp_path, 2)] == [10] * WORLD
    _all_equal(stage, tmp_path, undisturbed, 10)


def test_no_sample_is_read_twice_or_left_out(undisturbed):
    read = [sample for key, facts in undisturbed.items() if key[1] != "digest" for sample in facts[2]]
    assert len(read) == len(set(read)) == STEPS * WORLD * 8
    digests = {facts for key, facts in undisturbed.items() if key[1] == "digest"}
    assert len(digests) == 1, "all replicas end with the same bits"
    losses = [float.fromhex(undisturbed[0, step][0]) for step in range(STEPS)]
    assert sum(losses[-5:]) / 5 < 0.8 * sum(losses[:5]) / 5, "it learns"
