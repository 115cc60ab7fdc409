"""Names of a job's snapshot files, and where they lie."""

import re
from pathlib import Path
from typing import Final

FORMAT_VERSION: Final = 1
MANIFEST: Final = "MANIFEST.json"
FENCE: Final = "FENCE"
EXTENSION: Final = "safetensors"

_STEP = re.compile(r"step-(\d{8,})")
_ENTRY = re.compile(r"slot-(\d{5,})\.f(\d+)\.json")
_JOB = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def job_folder(root: Path | str, job: str) -> Path:
    """The job's folder.

    Raises:
        ValueError: the job's name is no plain file name.
    """
    if not _JOB.fullmatch(job):
        raise ValueError(f"job name {job!r} must be letters, digits, '.', '_', '-' (at most 128)")
    return Path(root) / job


def step_name(step: int) -> str:
    """`step-00001200`."""
    return f"step-{step:08d}"


def shard_name(slot: int, fence: int) -> str:
    """`slot-00000.f7.safetensors`."""
    return f"slot-{slot:05d}.f{fence}.{EXTENSION}"


def entry_name(slot: int, fence: int) -> str:
    """`slot-00000.f7.json`."""
    return f"slot-{slot:05d}.f{fence}.json"


def step_folders(folder: Path) -> list[tuple[int, Path]]:
    """(step, folder) of all step folders, newest first; none if the job has no folder yet."""
    if not folder.is_dir():
        return []
    found = [(int(match[1]), path) for path in folder.iterdir() if (match := _STEP.fullmatch(path.name))]
    return sorted(found, reverse=True)


def entries(step_folder: Path, fence: int) -> dict[int, Path]:
    """slot -> entry file, of those that were written under `fence`."""
    found = {}
    for path in step_folder.iterdir():
        match = _ENTRY.fullmatch(path.name)
        if match and int(match[2]) == fence:
            found[int(match[1])] = path
    return found
