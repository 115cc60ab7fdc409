"""The leader's numbers: bounded words, one series a subject, every node in one state."""

import pytest
from witness_doubles import FLEET

from detectors.core.types import Action
from detectors.witness.numbers import Tally, open_incidents, refusal_code, state_of_the_fleet
from outrider.fleet import Fleet, Node
from outrider.metrics import INCIDENT_LABELS


@pytest.mark.parametrize(
    ("why", "code"),
    [
        ("mode observe: recorded only", "mode_observe"),
        ("maintenance of n1, n2", "maintenance"),
        ("limit: j1 was restarted 5 times within 3600 s", "limit"),
        ("brake: many nodes were lost at once without a common cause", "brake"),
        ("paused: a person has stopped all actions", "paused"),
        ("", "unknown"),
    ],
)
def test_a_refusal_has_a_bounded_word(why: str, code: str) -> None:
    assert refusal_code(why) == code


def test_two_incidents_of_one_subject_are_one_series() -> None:
    picture = {"state": "confirmed", "fault": "node.lost", "culprit": "node", "response": "restart", "subject": {"node": "n1"}}
    shown = list(open_incidents({"a": picture, "b": picture, "c": {**picture, "state": "resolved"}}, Fleet()))
    assert shown == [("outrider_incident_open", ("node.lost", "node", "restart", "n1", "", "", "", ""), 1.0)]


def test_a_job_shows_the_incidents_of_its_nodes_too() -> None:
    about_node = {"state": "confirmed", "fault": "node.lost", "culprit": "node", "response": "restart", "subject": {"node": "n1"}}
    touching = {**about_node, "extra": {"jobs": ["j1", "j2"]}}
    about_job = {"state": "acting", "fault": "job.hang", "culprit": "none", "response": "page", "subject": {"job": "j1"}}
    shown = list(open_incidents({"a": touching, "b": about_job}, Fleet()))
    assert [(labels[0], labels[-1]) for name, labels, _ in shown if name == "outrider_incident_open"] == [
        ("job.hang", "j1"),
        ("node.lost", ""),
    ]
    assert [(labels[0], labels[-1]) for name, labels, _ in shown if name == "outrider_job_incident_open"] == [
        ("job.hang", "j1"),
        ("node.lost", "j1"),
        ("node.lost", "j2"),
    ]


def test_every_node_is_in_one_state() -> None:
    pictures = {
        "a": {"state": "suspected", "fault": "node.lost", "subject": {"node": "n1"}},
        "b": {"state": "acting", "fault": "job.rank_exit", "subject": {"node": "n2", "job": "j1"}},
    }
    memory = {"recovery": {"quarantined": {"n2": "b"}, "claimed": {"n3": "b"}, "guard": {"hold_until": 20.0, "paused": True}}}
    found = {(name, labels): value for name, labels, value in state_of_the_fleet(FLEET, pictures, memory, 10.0)}
    assert {labels[0]: value for (name, labels), value in found.items() if name == "outrider_nodes"} == {
        "healthy": 1.0, "suspect": 1.0, "lost": 0.0, "quarantined": 1.0, "maintenance": 0.0, "spare": 0.0,
    }  # fmt: skip
    assert found["outrider_spares_free", ()] == 0.0
    assert [found["outrider_brake", (name,)] for name in ("mass", "blind", "paused")] == [1.0, 0.0, 1.0]


def test_a_council_that_remembers_nothing_yet_has_numbers_too() -> None:
    found = {(name, labels): value for name, labels, value in state_of_the_fleet(FLEET, {}, {}, 10.0)}
    assert (found["outrider_nodes", ("healthy",)], found["outrider_nodes", ("spare",)]) == (2.0, 1.0)


def test_actions_and_refusals_are_counted() -> None:
    tally = Tally()
    for refused in (None, "limit: too many"):
        tally.decided(
            Action(t=1.0, decision_id="d", incident="i", action="drain", target={}, fence=1, deadline_seconds=1.0, refused=refused),
            {},
        )
    tally.ended("drain", "done")
    assert set(tally.readings()) == {
        ("outrider_actions_total", ("drain", "asked"), 1.0),
        ("outrider_actions_total", ("drain", "refused"), 1.0),
        ("outrider_actions_total", ("drain", "done"), 1.0),
        ("outrider_refusals_total", ("limit",), 1.0),
    }


def test_a_false_alarm_is_counted_by_class() -> None:
    tally = Tally()
    tally.said("false_alarm", "node.lost")
    tally.said("ack", "node.lost")
    assert list(tally.readings()) == [("outrider_incidents_total", ("node.lost", "false_alarm"), 1.0)]


def test_a_node_incident_names_the_nodes_one_switch() -> None:
    fleet = Fleet(nodes=(Node(node="n1", nics={"a": "leaf1"}), Node(node="n2", nics={"a": "rail0", "b": "rail1"})))
    one = {"state": "confirmed", "fault": "node.lost", "culprit": "node", "response": "restart"}
    pictures = {node: {**one, "subject": {"node": node}} for node in ("n1", "n2")}
    place = INCIDENT_LABELS.index("switch")
    assert [labels[place] for _, labels, _ in open_incidents(pictures, fleet)] == ["leaf1", ""]
