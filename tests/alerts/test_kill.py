"""kill -9 of the deliverer at random points: every action at least once, its effect once, the order kept."""

import random
from pathlib import Path

import pytest
from killing import kill_again_and_again, moody

KILLS = 50


@pytest.mark.real
async def test_fifty_kills_lose_nothing_and_keep_the_order(leader, serve, ledger_section, secret_file) -> None:
    chance = random.Random(5)
    receiver = await serve(await moody(chance))
    outcome = await kill_again_and_again(leader, receiver, Path(ledger_section.path), secret_file, KILLS, chance)
    assert outcome.kills == KILLS
    assert outcome.lost == []
    assert outcome.out_of_order == []
    assert len(receiver.effects) == len(outcome.put) == 3 * KILLS
