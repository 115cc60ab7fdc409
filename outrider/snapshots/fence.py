"""The fence of a job: a number that only grows, so that whoever belongs to an older attempt can harm nothing.

The file `<root>/<job>/FENCE` holds the fence of the attempt that runs now and the list of the snapshots that stood when it
was raised. A writer reads it again before it writes anything shared and before it links a MANIFEST. That check and the link
are two moments, and a process can be frozen between them for hours; so a restorer trusts, of the sets under an older fence,
only those on the list. The list is made before the new fence is written: a set that slips in between is lost, never half
trusted. An emergency set is written under the fence of the leader's order, which must be below the next attempt's.
"""

import contextlib
import fcntl
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outrider.snapshots import files
from outrider.snapshots.errors import SnapshotError, StaleFenceError
from outrider.snapshots.layout import FENCE, MANIFEST, job_folder, step_folders


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceRecord:
    """`sets`: (step, fence) of the snapshots that stood when the fence was raised, newest first."""

    fence: int = 0
    sets: frozenset[tuple[int, int]] = frozenset()

    def admits(self, step: int, fence: int) -> bool:
        """Whether a committed set may be restored by an attempt under this fence."""
        return fence >= self.fence or (step, fence) in self.sets


def read_fence(root: Path | str, job: str) -> FenceRecord:
    """The job's fence now; 0 if none was ever raised.

    Raises:
        SnapshotError: the file cannot be read or makes no sense.
    """
    path = job_folder(root, job) / FENCE
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        sets = frozenset((int(step), int(fence)) for step, fence in table["sets"])
        return FenceRecord(fence=int(table["fence"]), sets=sets)
    except FileNotFoundError:
        return FenceRecord()
    except OSError as error:
        raise SnapshotError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise SnapshotError(f"{path}: is not a fence file") from None


def check_fence(root: Path | str, job: str, fence: int) -> FenceRecord:
    """The job's fence, if a writer under `fence` may still write.

    Raises:
        StaleFenceError: a newer attempt has begun.
    """
    record = read_fence(root, job)
    if record.fence > fence:
        raise StaleFenceError(f"job {job}: fence {fence} was superseded by {record.fence}: nothing is written")
    return record


def raise_fence(root: Path | str, job: str, fence: int) -> FenceRecord:
    """Raises the job's fence before an attempt is started; the same fence again changes nothing.

    Args:
        root: folder of all snapshots; made if it is not there.
        job: name of the job.
        fence: greater than all before.

    Returns:
        What is on the file now.

    Raises:
        StaleFenceError: the job's fence is greater already.
        OSError: the folder cannot be written.
    """
    folder = job_folder(root, job)
    folder.mkdir(parents=True, exist_ok=True)
    with _exclusively(folder):
        old = check_fence(root, job, fence)
        if old.fence == fence:
            return old
        sets = frozenset(key for key in _committed(folder) if old.admits(*key))
        body = {"fence": fence, "sets": sorted(sets, reverse=True)}
        files.replace(folder / FENCE, (json.dumps(body) + "\n").encode())
    return FenceRecord(fence=fence, sets=sets)


def _committed(folder: Path) -> list[tuple[int, int]]:
    """(step, fence) of every set that has a readable MANIFEST."""
    found = []
    for step, path in step_folders(folder):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            table: dict[str, Any] = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
            found.append((step, int(table["fence"])))
    return found


@contextlib.contextmanager
def _exclusively(folder: Path) -> Iterator[None]:
    """Only one raises the fence at a time. Writers of snapshots never take this lock."""
    with (folder / f".{FENCE}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
