"""A node that comes and goes is shown as unstable, told of once, and moves nobody."""

from core_cluster import Cluster, small_fleet
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from detectors.core.docket import Docket
from detectors.core.rules.flapping import CALM_SECONDS_MAX, FlappingRule
from detectors.core.types import Verdict
from detectors.core.world import World

ALL = {"w1", "w2", "w3"}
MOVES = {"quarantine", "drain", "restart"}


def flap(cluster: Cluster, *nodes: str, silent: float = 6.0, between: float = 14.0) -> None:
    for node in nodes:
        cluster.silence(node)
    cluster.run(silent)
    for node in nodes:
        cluster.beat_to[node] = set(ALL)
    cluster.run(between)


def unstable(cluster: Cluster) -> list[tuple[str, str]]:
    return [(one.event, one.response) for one in cluster.changes() if one.fault == "node.unstable"]


def test_the_third_silence_shows_the_node_as_unstable_and_tells_nobody() -> None:
    cluster = Cluster()
    cluster.run(10)
    for count in range(3):
        assert unstable(cluster) == [], f"after {count} silences"
        flap(cluster, "n3")
    assert unstable(cluster) == [("suspected", "watch")]
    [incident] = [one for one in cluster.council.open.values() if one.fault == "node.unstable"]
    assert incident.subject == {"node": "n3"} and "3 times" in incident.explanation
    assert not MOVES & {one.action for one in cluster.actions()}


def test_a_node_that_calms_down_is_stable_again() -> None:
    cluster = Cluster()
    cluster.run(10)
    for _ in range(4):
        flap(cluster, "n3")
    cluster.run(140)
    assert [event for event, _ in unstable(cluster)] == ["suspected", "refuted"]


def test_who_goes_on_for_half_an_hour_is_told_of_once() -> None:
    cluster = Cluster(step_s=30.0)
    cluster.run(10)
    for _ in range(12):
        flap(cluster, "n3", between=240.0)
    assert unstable(cluster) == [("suspected", "watch"), ("confirmed", "page")]
    assert [one.action for one in cluster.actions()] == ["page"]


def test_an_unstable_node_is_no_spare() -> None:
    cluster = Cluster(fleet=small_fleet(nodes=6, spares=2))
    cluster.run(10)
    for _ in range(3):
        flap(cluster, "n5")
    cluster.signal("kernel", node="n1", data={"event": "panic"})
    cluster.run(1)
    [restart] = [one for one in cluster.actions() if one.action == "restart"]
    assert [item["to"] for item in restart.target["replace"]] == ["n6"]


def test_nodes_that_come_and_go_together_are_not_unstable() -> None:
    cluster = Cluster(fleet=small_fleet(nodes=24, rack=lambda index: f"r{index // 4}"))
    cluster.run(10)
    for _ in range(5):
        flap(cluster, "n1", "n2", "n3", "n4", silent=5.0)
    assert unstable(cluster) == []


def test_an_unstable_node_that_dies_is_lost_all_the_same() -> None:
    cluster = Cluster()
    cluster.run(10)
    for _ in range(4):
        flap(cluster, "n3")
    cluster.silence("n3")
    cluster.answers["n3"] = "none"
    cluster.stepping = False
    for rank in (1, 3):
        cluster.signal("collective_error", job="j1", rank=rank, node=f"n{rank + 1}", data={"attempt": 1, "peer": "10.0.0.3:1"})
    cluster.run(10)
    assert cluster.confirmed() == ["node.lost"]


gaps = st.lists(st.tuples(st.floats(4.0, 40.0), st.floats(1.0, 7200.0)), min_size=1, max_size=40)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(gaps)
@example([(4.0, 1670.0), (40.0, 1.0), (29.0, 1.0), (29.0, 1.0), (29.0, 120.0), (4.0, 5.0)])
def test_whatever_its_rhythm_a_series_is_told_of_once_and_calm_ends_it(series: list[tuple[float, float]]) -> None:
    """Never sure before the third silence nor before half an hour; taken back only after a calm longer than its gaps."""
    fleet = small_fleet()
    docket = Docket("w1", 10.0)
    away: set[str] = set()
    rule = FlappingRule(World(fleet), docket, away.__contains__)
    now, told, returns = 0.0, 0, []
    sure = False
    for silent, between in series:
        back = now + silent
        away.add("n3")
        while (due := rule.next_due()) <= back:
            rule.advance(due)
        away.clear()
        now = back
        rule.returned("n3", silent, now, alone=True)
        returns.append(now)
        end = now + between
        while (due := rule.next_due()) <= end:
            rule.advance(due)
            found = docket.find("node.unstable", {"node": "n3"})
            if found is not None and found.verdict is Verdict.FAULTY:
                assert len([when for when in returns if due - when <= 4 * 3600.0]) >= 3
                assert found.response in ("watch", "page") and found.sure == (found.response == "page")
                told += found.sure and not sure
                sure = found.sure
            elif sure:
                sure = False
                longest = max(after - before for before, after in zip(returns[-4:], returns[-3:], strict=False))
                assert due - returns[-1] >= min(CALM_SECONDS_MAX, longest) - 1e-6
        now = end
    calm = sum(between > CALM_SECONDS_MAX for _, between in series)
    assert told <= 1 + calm, "told again though it never was calm for an hour"
