"""What the SDK says of what it is given: tensors as figures, loaders without a position, folders that cannot be written."""

import logging
import math
import os
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest

from outrider import launchers
from outrider.sdk import log
from outrider.sdk.figures import plain
from outrider.sdk.settings import Place, why_not_writable
from outrider.sdk.subject import Subject


@pytest.fixture
def said(caplog):
    log._TOLD.clear()
    caplog.set_level(logging.WARNING, "outrider")
    return lambda: [record.getMessage() for record in caplog.records]


def test_a_number_in_the_cpus_memory_is_read_quietly(said):
    torch = pytest.importorskip("torch")
    for value in (
        1.5,
        torch.tensor(1.5),
        torch.tensor(1.5, requires_grad=True) * 1,
        torch.tensor([1.5]),
        torch.tensor(1.5).double(),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert plain("loss", value) == 1.5
    assert said() == []


class OnADevice:
    """A tensor whose reading would wait; nobody may touch it."""

    device = SimpleNamespace(type="cuda", __str__=lambda self: "cuda:0")

    def __float__(self):
        raise AssertionError("the device was waited for")

    detach = item = __float__


def test_a_number_on_a_device_is_refused_with_one_line_and_never_waited_for(said):
    for _ in range(3):
        assert math.isnan(plain("loss", OnADevice()))
    (line,) = said()
    assert "loss.item()" in line and "wait" in line


@pytest.mark.parametrize("value", ["much", None, object(), [1.0, 2.0], 10**400], ids=["word", "nothing", "object", "list", "huge"])
def test_what_is_no_number_is_passed_over_with_one_line(said, value):
    assert math.isnan(plain("tokens", value)) and math.isnan(plain("tokens", value))
    (line,) = said()
    assert "step.report(tokens=..)" in line


def test_a_loader_without_a_position_is_told_once_with_what_it_means(said):
    torch = pytest.importorskip("torch")
    loader = torch.utils.data.DataLoader([1, 2, 3])
    subject = Subject(model=None, optimizer=None, scheduler=None, scaler=None, data=loader, sampler=None, extra=None)
    assert [subject.remember() for _ in range(3)] == [(None, None)] * 3
    (line,) = said()
    assert "DataLoader" in line and "begins anew" in line and "StatefulDataLoader" in line


def test_a_folder_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    assert why_not_writable(tmp_path) == why_not_writable(tmp_path / "a" / "b") == ""
    assert not (tmp_path / "a").exists()
    (tmp_path / "file").touch()
    assert "no folder" in why_not_writable(tmp_path / "file" / "x")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert str(tmp_path) in why_not_writable(tmp_path / "a")


def test_it_is_told_when_the_script_attaches_not_when_the_first_snapshot_fails(tmp_path, said):
    torch = pytest.importorskip("torch")
    import outrider

    (tmp_path / "file").touch()
    run = outrider.attach(model=torch.nn.Linear(1, 1), place=Place(root=tmp_path / "file"))
    run.close()
    assert [line for line in said() if "OUTRIDER_SNAPSHOTS" in line and "no folder" in line]


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"OUTRIDER_JOB": "llm", "SLURM_JOB_ID": "7"}, "llm"),
        ({"SLURM_JOB_ID": "7", "TORCHELASTIC_RUN_ID": "r"}, "slurm-7"),
        ({"KUBERNETES_SERVICE_HOST": "h", "JOB_COMPLETION_INDEX": "0", "JOBSET_NAME": "js"}, "js"),
        ({"TORCHELASTIC_RUN_ID": "r"}, "r"),
        ({"RANK": "0"}, "job"),
    ],
    ids=["told", "Slurm", "Kubernetes", "torchrun", "nobody"],
)
def test_the_job_has_the_name_that_its_agent_finds_from_outside(environment, expected):
    assert Place.of(environment).job == expected == (launchers.job_name(environment) or "job")


@pytest.mark.parametrize(
    ("environment", "attempt", "base"),
    [
        ({}, 1, None),
        ({"OUTRIDER_ATTEMPT": "3"}, 3, None),
        ({"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "2"}, 3, None),
        ({"OUTRIDER_ATTEMPT": "3", "TORCHELASTIC_RESTART_COUNT": "1"}, 4, None),
        ({"TORCHELASTIC_RESTART_COUNT": "1", "GROUP_WORLD_SIZE": "2", "TORCHELASTIC_MAX_RESTARTS": "3"}, 2, 1),
        ({"OUTRIDER_ATTEMPT": "3", "GROUP_WORLD_SIZE": "2", "TORCHELASTIC_MAX_RESTARTS": "0"}, 3, None),
    ],
    ids=["nobody counts", "told", "Slurm", "one torchrun", "torchruns that count apart", "torchruns that never restart"],
)
def test_which_start_of_the_job_it_is(environment, attempt, base):
    place = Place.of(environment)
    assert (place.attempt, place.base) == (attempt, base)


def test_snapshots_under_a_launchers_name_are_told(tmp_path: Path, said):
    Place.of({"SLURM_JOB_ID": "7", "OUTRIDER_SNAPSHOTS": str(tmp_path)})
    (line,) = said()
    assert "slurm-7" in line and "OUTRIDER_JOB" in line
    Place.of({"OUTRIDER_JOB": "llm", "SLURM_JOB_ID": "7", "OUTRIDER_SNAPSHOTS": str(tmp_path)})
    assert len(said()) == 1
