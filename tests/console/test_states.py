"""One letter a node: the worst that holds is shown, and what is not known is not healthy."""

from typing import Any

import msgspec
import pytest

from dashboards.console.states import LETTERS, Memory, nodes_of, read_memory, standing, state_letters
from outrider.fleet import Fleet, Node

FLEET = Fleet(nodes=(Node(node="n1", rack="r1"), Node(node="n2", rack="r1")), spares=("n2",))
HEARD = {"n1": 99.5, "n2": 99.5}


def about(node: str, state: str, response: str = "restart", fault: str = "node.lost", **extra: Any) -> dict[str, Any]:
    return {"incident": "i", "state": state, "response": response, "fault": fault, "subject": {"node": node}, "extra": extra}


@pytest.mark.parametrize(
    ("pictures", "memory", "heard", "state"),
    [
        ([], {}, HEARD, "healthy"),
        ([], {}, {}, "unknown"),
        ([], {}, {"n1": 90.0}, "silent"),
        ([about("n1", "suspected")], {}, HEARD, "suspect"),
        ([about("n1", "confirmed")], {}, HEARD, "lost"),
        ([about("n1", "acting", "drain")], {}, HEARD, "lost"),
        ([about("n1", "confirmed", "page")], {}, HEARD, "fault"),
        ([about("n1", "recovering")], {}, HEARD, "recovering"),
        ([about("n1", "resolved")], {}, HEARD, "healthy"),
        ([about("n1", "suspected"), about("n1", "confirmed")], {}, HEARD, "lost"),
        ([about("n1", "confirmed", fault="job.hang")], {}, HEARD, "healthy"),
        ([about("n9", "confirmed", nodes=["n1"])], {}, HEARD, "lost"),
        ([], {"quarantined": {"n1": {}}}, HEARD, "quarantined"),
        ([about("n1", "recovering")], {"quarantined": {"n1": {}}}, HEARD, "quarantined"),
        ([], {"guard": {"maintenance": {"n1": True}}}, HEARD, "maintenance"),
        ([about("n1", "suspected")], {"guard": {"maintenance": {"n1": True}}}, HEARD, "maintenance"),
        ([], {"guard": {"maintenance": {"n1": False}}}, HEARD, "healthy"),
    ],
)
def test_worst_state_that_holds_is_shown(
    pictures: list[dict[str, Any]], memory: dict[str, Any], heard: dict[str, float], state: str
) -> None:
    told = msgspec.convert({"recovery": memory}, Memory)
    assert state_letters(FLEET, pictures, told, heard, 100.0)[0] == LETTERS[state]


def test_spare_is_a_spare_until_it_is_claimed() -> None:
    assert state_letters(FLEET, [], Memory(), HEARD, 100.0)[1] == LETTERS["spare"]
    claimed = read_memory(b'{"incidents": [], "recovery": {"claimed": {"n2": "i1"}, "fence": 3}}')
    assert state_letters(FLEET, [], claimed, HEARD, 100.0)[1] == LETTERS["healthy"]


@pytest.mark.parametrize("council", [None, b"", b"[]", b"not json", b'{"recovery": 3}'])
def test_a_memory_that_cannot_be_read_is_unknown(council: bytes | None) -> None:
    assert read_memory(council) == Memory()


def test_letters_are_all_different() -> None:
    assert len(set(LETTERS.values())) == len(LETTERS)


@pytest.mark.parametrize("picture", [{}, {"subject": None}, {"subject": {"node": None}}, {"extra": {"nodes": "n1"}, "subject": {}}])
def test_an_incident_that_names_no_node_marks_none(picture: dict[str, Any]) -> None:
    assert nodes_of(picture) == []


def test_what_stands_is_told_with_the_seconds_left() -> None:
    guard = {"hold_until": 130.0, "blind": True}
    told = {"recovery": {"quarantined": {"n2": {}}, "guard": guard, "safety": {"approvals": {"i1": 90.0}}}}
    memory = read_memory(msgspec.json.encode(told))
    assert standing(memory, 100.0) == {"quarantined": ["n2"], "blind": True, "hold_s": 30.0, "approvals": {"i1": 0.0}}
    assert standing(read_memory(b'{"recovery": {"guard": {"hold_until": null}}}'), 100.0)["hold_s"] == 0.0
