"""What the next leader's council knows, does again, and does not do again."""

import json
from dataclasses import replace
from typing import Any

import pytest
from core_cluster import WITNESSES, small_fleet

from detectors.core.council import Council
from detectors.core.types import Action, ActionResult, Decision, Evidence, IncidentChange, OperatorEvent, Verdict, Vote
from outrider.config.policy import Policy
from outrider.signals import Signal

FLEET = small_fleet(nodes=8, spares=2)


class Seat:
    """The leader's seat: a council that hears votes, and whose memory goes on to the next one as JSON."""

    def __init__(self, **policy: Any) -> None:
        self.policy = Policy(**({"mode": "act"} | policy))
        self.council = Council(FLEET, self.policy, WITNESSES)
        self.now = 100.0
        self.out: list[Decision] = []
        self.votes: dict[tuple[str, str], Vote] = {}

    def vote(self, fault: str, job: str = "j1", verdict: Verdict = Verdict.FAULTY, response: str = "restart") -> None:
        """About a job as a whole: taking a node out settles nothing of it."""
        subject = {"job": job}
        piece = Evidence(t=self.now, kind="k", subject=subject, effect="confirm", text=fault)
        for witness in WITNESSES:
            vote = Vote(
                key=f"{fault}|job={job}|1", witness=witness, verdict=verdict, fault=fault, culprit="app", subject=subject,
                incarnation="1", response=response, repair="none", layers=("application",), evidence=(piece,), reason=fault,
                reason_code="r", t=self.now, decisive=True, extra={"sure": verdict is Verdict.FAULTY, "attempt": 1},
            )  # fmt: skip
            self.votes[vote.key, witness] = vote
            self.out += self.council.observe(vote, self.now)
        self.out += self.council.advance(self.now)

    def view(self, *witnesses: str, late: dict[str, int] | None = None, jobs: dict[str, list[int]] | None = None) -> None:
        for witness in witnesses:
            view = {"quiet": [], "quiet_count": 0, "late_count": (late or {}).get(witness, 0), "known": 8, "jobs": jobs or {}}
            told = Vote(
                key=f"view|witness={witness}|", witness=witness, verdict=Verdict.CLEAR, fault="monitor.witness_lost",
                culprit="monitor", subject={"witness": witness}, incarnation="", response="watch", repair="none", layers=(),
                evidence=(), reason="", reason_code="view", t=self.now, extra={"view": view},
            )  # fmt: skip
            self.out += self.council.observe(told, self.now)

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.out += self.council.advance(self.now)

    def pass_on(self, *, votes: bool = True) -> None:
        """The next leader: the memory as it was kept last, and the votes that the ledger still has."""
        memory = json.loads(json.dumps(self.council.snapshot()))
        self.council = Council(FLEET, self.policy, WITNESSES, fence=memory["recovery"]["fence"])
        self.council.restore(memory)
        self.out.clear()
        for vote in self.votes.values() if votes else ():
            self.out += self.council.observe(vote, self.now)
        self.out += self.council.advance(self.now)

    def say(self, kind: Any, target: str) -> None:
        self.out += self.council.observe(OperatorEvent(kind=kind, target=target, who="ann"), self.now)

    def actions(self, *names: str) -> list[Action]:
        return [one for one in self.out if isinstance(one, Action) and one.action in names]

    def events(self) -> list[tuple[str, str]]:
        return [(one.event, one.fault) for one in self.out if isinstance(one, IncidentChange)]

    @property
    def incident(self) -> str:
        return next(iter(self.council.incidents))


def over(seat: Seat, how: str) -> None:
    """The incident ends although the witnesses go on to doubt."""
    if how == "false alarm":
        seat.say("false_alarm", seat.incident)
    else:
        seat.view("w1", "w2", "w3", jobs={"j1": [2, 7]})
    seat.wait(0.5)
    assert seat.events()[-1][0] == "resolved"


@pytest.mark.parametrize("how", ["false alarm", "the job steps again"])
@pytest.mark.parametrize("changes", [1, 3])
def test_a_doubt_that_outlives_its_incident_is_no_new_one_to_the_next_leader(how: str, changes: int) -> None:
    seat = Seat()
    seat.vote("job.hang")
    over(seat, how)
    for _ in range(changes):
        seat.wait(2.0)
        seat.pass_on()
        assert seat.out == []


@pytest.mark.parametrize("late", [False, True])
def test_a_doubt_that_comes_back_is_a_new_one_to_the_next_leader_too(late: bool) -> None:
    """The doubt ended before the change; also where only then the memory was kept that says so."""
    seat = Seat()
    seat.vote("job.hang")
    over(seat, "false alarm")
    seat.council.saved()
    assert not seat.council.unsaved
    seat.vote("job.hang", verdict=Verdict.CLEAR)
    assert seat.council.unsaved, "the memory that was kept calls it doubted"
    if late:
        seat.pass_on()
    seat.vote("job.hang")
    if not late:
        seat.pass_on()
        assert seat.out == []
    assert [one.fault for one in seat.council.open.values()] == ["job.hang"]


def test_a_suspicion_without_any_vote_is_over_under_the_next_leader_too() -> None:
    seat = Seat()
    seat.council.observe_votes([replace(vote, decisive=False, extra={"sure": False}) for vote in _cast(seat)], seat.now)
    assert [one.state.value for one in seat.council.open.values()] == ["suspected"]
    seat.now += 30.0
    seat.pass_on(votes=False)
    assert seat.events() == [("refuted", "job.hang")] and not seat.council.open


def _cast(seat: Seat) -> list[Vote]:
    other = Seat()
    other.vote("job.hang")
    return list(other.votes.values())


def test_a_vote_that_expires_counts_no_more_at_once_and_not_when_the_next_vote_comes() -> None:
    """As a new leader counts that never heard it."""
    seat = Seat()
    seat.vote("job.hang", response="page")
    seat.now += 5.0
    for witness in ("w1", "w2"):
        vote = replace(seat.votes["job.hang|job=j1|1", witness], verdict=Verdict.CLEAR, t=seat.now, extra={"sure": False})
        seat.out += seat.council.observe(vote, seat.now)
    assert seat.council.open and (seat.council.next_deadline() or 0.0) <= 110.0
    seat.wait(5.0)
    assert seat.events()[-1] == ("resolved", "job.hang")


def test_a_recovery_under_way_is_not_called_off_under_the_next_leader() -> None:
    seat = Seat()
    seat.vote("job.hang")
    assert seat.actions("restart")
    seat.pass_on()
    seat.vote("job.hang", verdict=Verdict.CLEAR)
    assert seat.events() == [] and seat.council.open


def lose_node(seat: Seat) -> None:
    piece = Evidence(t=seat.now, kind="xid", subject={"node": "n1"}, effect="confirm", text="Xid 79")
    votes = [
        Vote(
            key="gpu.fallen_off_bus|node=n1|b", witness=witness, verdict=Verdict.FAULTY, fault="gpu.fallen_off_bus", culprit="gpu",
            subject={"node": "n1"}, incarnation="b", response="restart", repair="none", layers=("hardware",), evidence=(piece,),
            reason="it fell off", reason_code="xid", t=seat.now, decisive=True, extra={"sure": True},
        )
        for witness in WITNESSES
    ]  # fmt: skip
    seat.out += seat.council.observe_votes(votes, seat.now)


def test_a_spare_that_fails_its_check_is_replaced_under_the_next_leader_too() -> None:
    seat = Seat()
    lose_node(seat)
    [restart] = seat.actions("restart")
    seat.pass_on()
    detail = {"reason_code": "spare_unfit"}
    seat.out += seat.council.observe(ActionResult(decision_id=restart.decision_id, outcome="failed", detail=detail), seat.now)
    [again] = seat.actions("restart")
    assert again.target["replace"][0]["to"] != restart.target["replace"][0]["to"]
    assert len(json.dumps(seat.council.snapshot()["recovery"]["actions"])) < 200 * len(seat.council.recovery.actions)


def test_a_node_is_given_back_after_it_was_taken_out_under_the_next_leader_too() -> None:
    seat = Seat()
    lose_node(seat)
    [taken] = seat.actions("quarantine")
    seat.pass_on()
    seat.say("release", "n1")
    [release] = seat.actions("release")
    assert release.after == (taken.decision_id,)


def test_a_consequence_stays_one_however_late_the_next_leader_hears_of_it() -> None:
    """Joined without a decision; the memory must be kept, for the next leader may hear of it too late to see the cause."""
    seat = Seat()
    seat.vote("job.oom")
    seat.council.saved()
    seat.vote("job.rank_exit")
    assert seat.council.unsaved and len(seat.council.open) == 1
    seat.now += 200.0
    seat.votes = {place: replace(vote, t=seat.now) for place, vote in seat.votes.items()}
    seat.pass_on()
    assert seat.out == [] and len(seat.council.open) == 1


def test_progress_ends_a_crash_loop_for_the_next_leader_too() -> None:
    seat = Seat()
    seat.vote("job.hang")
    seat.council.saved()
    for step in (8, 9):
        seat.council.observe(Signal(t=seat.now, kind="snapshot", job="j1", value=step, data={"state": "committed"}), seat.now)
        assert seat.council.unsaved == (step == 8), "only the first snapshot after a failure counts"
        seat.council.saved()
    seat.pass_on()
    assert seat.council.recovery.loops["j1"].failures == 0


def test_a_witness_behind_a_broken_path_is_told_of_once() -> None:
    seat = Seat()
    late = {"w3": 5}
    for _ in range(8):
        seat.view(*WITNESSES, late=late)
        seat.wait(1.0)
    assert seat.events() == [("suspected", "monitor.blind"), ("confirmed", "monitor.blind")]
    seat.pass_on()
    for _ in range(8):
        seat.view(*WITNESSES, late=late)
        seat.wait(1.0)
    assert seat.events() == [], "neither over nor found anew"


def test_a_witness_that_fell_silent_before_the_change_is_missed_and_what_is_unknown_ends_nothing() -> None:
    seat = Seat()
    seat.view(*WITNESSES)
    seat.wait(12.0)
    seat.pass_on(votes=False)
    for _ in range(12):
        seat.view("w1", "w2")
        seat.wait(1.0)
    assert ("confirmed", "monitor.witness_lost") in seat.events()
    seat.out.clear()
    seat.wait(10.0)  # the others' views are old now: nothing is known of anybody
    assert seat.events() == []
    seat.view(*WITNESSES)
    seat.wait(1.0)
    assert seat.events() == [("resolved", "monitor.witness_lost")]


def test_a_name_that_was_used_is_not_used_again_after_its_incident_was_let_go() -> None:
    """Or the deliverer would take what people are told for what they were told long ago."""
    seat = Seat()
    seat.vote("job.hang")
    name = seat.incident
    memory = json.loads(json.dumps(seat.council.snapshot()))
    heir = Council(FLEET, seat.policy, WITNESSES, fence=9)
    heir.restore({**memory, "incidents": [], "past": [name], "doubted": {}})
    heir.observe_votes(list(seat.votes.values()), 5000.0)
    assert [one.fault for one in heir.open.values()] == ["job.hang"] and name not in heir.open


def test_a_job_that_begins_under_the_name_of_one_that_is_over_is_another() -> None:
    """The memory knows neither the failures of the one before nor who stood in for whom."""
    seat = Seat()
    seat.vote("job.hang")
    seat.council.saved()
    seat.council.observe(Signal(t=1.0, kind="job", job="j1", value=1, data={"over": True}), seat.now)
    assert seat.council.unsaved
    seat.pass_on()
    assert not seat.council.recovery.loops and not seat.council.recovery.replaced
    seat.council.observe(Signal(t=1.0, kind="job", job="j1", value=2, data={"slots": [["n1", 0]]}), seat.now)
    assert not seat.council.world.restarted, "nobody here looks at them"


@pytest.mark.parametrize("mode", ["act", "advise"])
def test_a_second_yes_does_nothing_twice(mode: str) -> None:
    """Two people, or one whose first answer was lost on its way back from a leader that fell."""
    seat = Seat(mode=mode)
    lose_node(seat)
    seat.say("approve", seat.incident)
    seat.pass_on()
    seat.say("approve", seat.incident)
    assert seat.actions("quarantine", "restart", "snapshot") == []


def test_a_yes_to_a_suspicion_holds_once_it_is_confirmed() -> None:
    seat = Seat(mode="advise")
    seat.council.observe_votes([replace(vote, extra={"sure": False}) for vote in _cast(seat)], seat.now)
    seat.say("approve", seat.incident)
    assert seat.actions("restart") == []
    seat.vote("job.hang")
    assert len(seat.actions("restart")) == 1
