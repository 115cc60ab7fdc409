"""A stop told about the job as a whole (Kueue's preemption, `alerts.schedulers.kueue_watch`) is no fault, however it looks."""

import pytest
from traces import actions, confirmed, header, run

#: After a stop: one rank ends by itself with an error of its own, one loses its peer, and nothing moves any more.
FALLING = [
    {"t": 40.5, "kind": "process_exit", "job": "j1", "rank": 3, "value": 1},
    {"t": 40.6, "kind": "collective_error", "job": "j1", "rank": 1, "data": {"peer": "n2"}},
    {"t": 40.7, "kind": "process_exit", "job": "j1", "rank": 1, "value": -6},
    {"t": 41.0, "kind": "pause", "node": "n1", "value": None, "data": {"heartbeats": False, "steps": True}},
]


@pytest.mark.parametrize("reason", ["preempted", "time_limit", "cancelled", "requeued"])
def test_job_that_is_said_to_be_stopped_opens_no_fault_when_its_ranks_fall_over_one_another(reason: str) -> None:
    told = {"t": 40, "kind": "process_exit", "job": "j1", "value": 0, "source": "kueue", "data": {"attempt": 1, "reason": reason}}
    assert confirmed(run(header(until=600), *FALLING)), "without the word it is a fault"
    lines = run(header(until=600), told, *FALLING)
    assert not actions(lines)
    assert not confirmed(lines)
