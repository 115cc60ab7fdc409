"""The count of votes against a slow, simple twin, and what a minority can do: nothing."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from detectors.core.quorum import VETO_SECONDS, VIEW_FRESH_SECONDS, Ballot, Outcome, Quorum
from detectors.core.types import Verdict, Vote

NAMES = ("w1", "w2", "w3", "w4", "w5")


def vote(witness: str, verdict: Verdict, sure: bool, silence: bool, decisive: bool = True, layers: int = 1) -> Vote:
    extra = {"sure": sure} | ({"silence": True} if silence else {})
    return Vote(
        key="node.lost|node=n1|b", witness=witness, verdict=verdict, fault="node.lost", culprit="node", subject={"node": "n1"},
        incarnation="b", response="restart", repair="investigate", layers=("hardware", "communication")[:layers], evidence=(),
        reason="", reason_code="x", t=0.0, decisive=decisive, extra=extra,
    )  # fmt: skip


def view(witness: str, quiet: list[str], known: int = 5) -> Vote:
    told = {"quiet": quiet, "quiet_count": len(quiet), "late_count": 0, "known": known, "abstains": False}
    return Vote(
        key=f"view|witness={witness}|", witness=witness, verdict=Verdict.CLEAR, fault="monitor.witness_lost", culprit="monitor",
        subject={}, incarnation="", response="watch", repair="none", layers=(), evidence=(), reason="", reason_code="view", t=0.0,
        extra={"view": told},
    )  # fmt: skip


def twin(size: int, ballot: Ballot, views: dict[str, tuple[float, list[str]]], now: float) -> Outcome:
    """The rule in its plainest words."""
    names = NAMES[:size]
    live = {w: ballot.votes[w][0] for w in names if w in ballot.votes and now - ballot.votes[w][1] < 10.0}
    faulty = [v for v in live.values() if v.verdict is Verdict.FAULTY]
    if not faulty:
        return Outcome.REFUTED if any(v.verdict is Verdict.CLEAR for v in live.values()) else Outcome.NOTHING
    majority = size // 2 + 1
    vetoed = waiting = False
    if any("silence" in v.extra for v in faulty):
        vetoed = any(v.verdict is Verdict.CLEAR for v in live.values())
        for w in names:
            if w in live or w not in views:
                continue
            arrived, quiet = views[w]
            if arrived > ballot.opened and "n1" not in quiet:
                vetoed = True
            elif now - arrived <= VIEW_FRESH_SECONDS and now < ballot.opened + VETO_SECONDS:
                waiting = True
    sure = [v for v in faulty if v.extra["sure"] and (v.decisive or len(v.layers) >= 2)]
    if vetoed or waiting or len(sure) < majority:
        return Outcome.SUSPECTED if len(faulty) >= majority else Outcome.NOTHING
    return Outcome.CONFIRMED


opinions = st.tuples(
    st.sampled_from(NAMES), st.sampled_from(list(Verdict)), st.booleans(), st.booleans(), st.integers(1, 2), st.floats(0, 20)
)
views_told = st.tuples(st.sampled_from(NAMES), st.booleans(), st.floats(0, 20))


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from([1, 3, 5]), st.booleans(), st.lists(opinions, max_size=8), st.lists(views_told, max_size=5), st.floats(0, 25)
)
def test_the_count_is_that_of_its_simple_twin(size: int, silence: bool, told: list, seen: list, later: float) -> None:
    quorum, ballot = Quorum(NAMES[:size]), Ballot("node.lost|node=n1|b", 0.0)
    views: dict[str, tuple[float, list[str]]] = {}
    for witness, verdict, sure, decisive, layers, at in sorted(told, key=lambda one: one[-1]):
        if witness in NAMES[:size]:
            ballot.votes[witness] = (vote(witness, verdict, sure, silence, decisive, layers), at)
    for witness, is_quiet, at in sorted(seen, key=lambda one: one[-1]):
        if witness in NAMES[:size]:
            quorum.saw(view(witness, ["n1"] if is_quiet else []), at)
            views[witness] = (at, ["n1"] if is_quiet else [])
    now = max([later, *(one[-1] for one in told), *(one[-1] for one in seen)])
    assert quorum.tally(ballot, now).outcome is twin(size, ballot, views, now)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from([3, 5]), st.integers(0, 2), st.booleans())
def test_a_minority_confirms_nothing(size: int, count: int, silence: bool) -> None:
    quorum, ballot = Quorum(NAMES[:size]), Ballot("node.lost|node=n1|b", 0.0)
    for witness in NAMES[: min(count, size // 2)]:
        ballot.votes[witness] = (vote(witness, Verdict.FAULTY, True, silence), 0.0)
    for now in (0.0, 1.0, 5.0, 9.0):
        assert quorum.tally(ballot, now).outcome is Outcome.NOTHING


def test_one_witness_that_hears_the_node_beats_all_that_do_not() -> None:
    quorum, ballot = Quorum(NAMES), Ballot("node.lost|node=n1|b", 0.0)
    for witness in NAMES[:4]:
        ballot.votes[witness] = (vote(witness, Verdict.FAULTY, True, True), 0.0)
    quorum.saw(view("w5", []), 0.5)
    assert quorum.tally(ballot, 1.0).outcome is Outcome.SUSPECTED
    assert quorum.tally(ballot, 1.0).votes["w5"] == "clear"


def test_a_witness_that_shows_no_view_is_lost_only_if_the_others_do() -> None:
    quorum = Quorum(NAMES[:3])
    for witness in NAMES[:3]:
        quorum.saw(view(witness, []), 0.0)
    assert not any(quorum.doubts(100.0).values())  # all are old: it is the leader or the ledger
    for witness in NAMES[:2]:
        quorum.saw(view(witness, []), 20.0)
    doubts = quorum.doubts(20.0)
    assert doubts["w3"] is not None and doubts["w3"][0] == "monitor.witness_lost" and doubts["w1"] is None


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from([3, 5]), st.lists(st.sampled_from(["watch", "page", "restart"]), min_size=5, max_size=5), st.booleans(),
)  # fmt: skip
def test_a_minority_that_asks_for_more_gets_no_more(size: int, asked: list[str], decisive: bool) -> None:
    """The response that goes out is one that a majority asks for, or something milder than its own wish."""
    ladder = ("watch", "page", "restart")
    quorum, ballot = Quorum(NAMES[:size]), Ballot("node.lost|node=n1|b", 0.0)
    for witness, response in zip(NAMES[:size], asked, strict=False):
        one = vote(witness, Verdict.FAULTY, True, False, decisive=decisive, layers=2)
        ballot.votes[witness] = (replace(one, response=response), 0.0)
    tally = quorum.tally(ballot, 1.0)
    assert tally.outcome is Outcome.CONFIRMED and tally.newest is not None
    behind = sum(ladder.index(response) >= ladder.index(tally.newest.response) for response in asked[:size])
    assert behind >= size // 2 + 1
