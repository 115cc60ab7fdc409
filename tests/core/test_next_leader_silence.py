"""A silence that is being heard out when the leader changes: the next one hears it out anew, and believes no view that is older."""

import pytest
from core_cluster import WITNESSES
from test_next_leader import Seat

from detectors.core.quorum import VETO_SECONDS
from detectors.core.types import Evidence, Verdict, Vote


def doubt(seat: Seat, witness: str) -> None:
    """`n1` is silent for this witness."""
    piece = Evidence(t=seat.now, kind="silence", subject={"node": "n1"}, effect="confirm", text="nothing heard")
    vote = Vote(
        key="node.lost|node=n1|b", witness=witness, verdict=Verdict.FAULTY, fault="node.lost", culprit="node",
        subject={"node": "n1"}, incarnation="b", response="restart", repair="none", layers=("hardware",), evidence=(piece,),
        reason="nothing heard", reason_code="silent", t=seat.now, decisive=True, extra={"sure": True, "silence": 1},
    )  # fmt: skip
    seat.votes[vote.key, witness] = vote
    seat.out += seat.council.observe(vote, seat.now)


def waiting() -> Seat:
    """Two of three doubt, the third shows its view and may yet say that it hears the node; then the leader changes."""
    seat = Seat()
    seat.view(*WITNESSES)
    seat.wait(1.0)
    doubt(seat, "w1")
    doubt(seat, "w2")
    seat.wait(0.5)
    assert seat.actions("restart") == []
    seat.pass_on(votes=False)
    seat.view(*WITNESSES)  # as they stand in the ledger: older than the doubts, and read before them
    for vote in seat.votes.values():
        seat.out += seat.council.observe(vote, seat.now)
    return seat


@pytest.mark.parametrize("hears", [False, True])
def test_the_next_leader_waits_as_long_as_the_first_and_acts_once(hears: bool) -> None:
    seat = waiting()
    assert seat.actions("restart") == []
    seat.wait(0.5)
    if hears:
        seat.view("w3")
    seat.wait(VETO_SECONDS - 0.5)
    assert len(seat.actions("restart")) == (not hears)
    seat.wait(1.0)
    assert len(seat.actions("restart")) == (not hears)
