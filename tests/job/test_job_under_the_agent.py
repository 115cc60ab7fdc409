"""The job with the real agent beside it: steps reach a witness, its orders reach the ranks, and the agent's death costs nothing."""

import signal
import sys
from pathlib import Path

import pytest
from job_stage import WORLD
from sdk_fakes import until

sys.path.insert(0, str(Path(__file__).parent.parent / "collectors"))

from collector_site import Site

from outrider.snapshots import newest_step

pytestmark = pytest.mark.real


@pytest.fixture
def site(tmp_path):
    one = Site(tmp_path, 1)
    one.start()
    until(one.socket.exists, 20)
    yield one
    one.close()


def _heard(site, kind, **data):
    found = [one for one in list(site.witnesses[0].signals) if one.kind == kind]
    return [one for one in found if all(one.data.get(key) == value for key, value in data.items())]


def test_an_order_to_publish_goes_all_the_way_and_a_dead_agent_is_not_missed(stage, site, undisturbed, tmp_path):
    pids = stage.start(tmp_path, agent=site.socket, DRILL_PACE=0.2)
    until(lambda: {one.rank for one in _heard(site, "step") if one.value >= 3} == set(range(WORLD)), 30)
    site.processes[0].send_signal(signal.SIGKILL)
    site.processes[0].wait(10)
    site.start()
    reached = max(one.value for one in _heard(site, "step"))
    until(lambda: {one.rank for one in _heard(site, "step") if one.value > reached} == set(range(WORLD)), 30)
    site.witnesses[0].order(
        number=1, id="o1", order="publish", job="j", ranks=tuple(range(WORLD)), fence=7, incident="i1", deadline_s=10.0
    )
    committed = until(lambda: _heard(site, "snapshot", state="committed", fence=7), 20)[0]
    assert committed.data["incident"] == "i1" and committed.data["attempt"] == 1 and committed.value > reached - 2
    assert stage.wait(pids) == [0] * WORLD
    assert newest_step(tmp_path / "snapshots", "j") == committed.value
    assert stage.facts(tmp_path) == undisturbed
    until(lambda: len(_heard(site, "process_exit")) == WORLD, 20)
    farewells = _heard(site, "process_exit")
    assert {one.data.get("farewell") for one in farewells} == {"end"}
