"""An action's target in words: nothing that is Python's, nothing that is empty."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detectors.replay.words import aim


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ({"node": "n3"}, "node n3"),
        ({"job": "A", "attempt": 1, "ranks": [1], "step": None}, "job A attempt 1, ranks 1"),
        ({"job": "A", "ranks": [0, 1, 2, 3, 7, 9, 10]}, "job A, ranks 0-3,7,9-10"),
        (
            {
                "job": "A",
                "attempt": 2,
                "replace": [{"slot": 3, "from": "n7", "to": "n9"}],
                "resume": {"step": None, "rule": "newest"},
            },
            "job A attempt 2, slot 3 n7 -> n9, resume from the newest snapshot",
        ),
        ({"job": "A", "resume": {"step": 1200, "manifest": "m", "rule": "at"}}, "job A, resume from step 1200"),
        ({"fault": "link.errors", "subject": {"node": "n3", "nic": "mlx5_0"}}, "link.errors, subject node=n3 nic=mlx5_0"),
    ],
)
def test_a_target_is_told_in_words(target, words):
    assert aim(target) == words


def test_of_many_moves_the_rest_is_a_number():
    moves = [{"slot": slot, "from": f"n{slot}", "to": f"s{slot}"} for slot in range(64)]
    assert aim({"job": "A", "replace": moves}).endswith("slot 3 n3 -> s3 and 60 more")


@given(st.sets(st.integers(0, 200)))
def test_ranges_say_every_rank_once(ranks):
    told = aim({"ranks": sorted(ranks)}).removeprefix("ranks ")
    spans = [tuple(map(int, part.split("-"))) for part in told.split(",") if part]
    assert [rank for span in spans for rank in range(span[0], span[-1] + 1)] == sorted(ranks)
