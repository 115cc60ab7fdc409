"""Real ranks, forked from one parent that loaded torch once; a hand-written agent beside them."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "sdk"))

pytest.importorskip("torch")

from job_stage import Stage
from sdk_fakes import FakeAgent


@pytest.fixture(scope="session")
def stage():
    one = Stage()
    yield one
    one.close()


@pytest.fixture
def agent(tmp_path):
    fake = FakeAgent(tmp_path / "agent").start()
    yield fake
    fake.stop()


@pytest.fixture(scope="session")
def undisturbed(stage, tmp_path_factory):
    """What every step and the end look like in a run that nothing happened to."""
    folder = tmp_path_factory.mktemp("undisturbed")
    assert stage.wait(stage.start(folder)) == [0, 0, 0, 0]
    return stage.facts(folder)
