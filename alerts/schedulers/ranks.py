"""Identity: a slot keeps its rank whatever node it is on. A rank map and a host file for each job, and the environment from them.

`<folder>/<job>.ranks.json`: `{"job", "attempt", "fence", "ranks": [{"rank", "slot", "node"}, ..]}`.
`<folder>/<job>.hosts`: one node a line in rank order, as `srun --distribution=arbitrary` (SLURM_HOSTFILE) and `mpirun` read it.
`<folder>/<job>.env`: what is the same for every rank of the attempt, for a shell's `.` or systemd's `EnvironmentFile=`.
"""

import hashlib
import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

import msgspec

from alerts.bodies import Data, Replace
from alerts.schedulers.port import SchedulerError
from outrider.wire import UNREADABLE


class UnwritableError(SchedulerError):
    """The folder of the rank maps is full, gone or not ours."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, "unwritable", again=True)


class DamagedError(SchedulerError):
    """A file of ours does not hold what we wrote. `path`: which, `why`: what is wrong with it."""

    def __init__(self, path: Path, why: object, more: str = "") -> None:
        super().__init__(f"{path} is damaged ({why}){more}", "damaged", again=False)
        self.path, self.why = path, why


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's place. Rank and slot are one number: the slot's place in the job."""

    rank: int
    slot: int
    node: str


class RankMap(msgspec.Struct, frozen=True, kw_only=True):
    """Where each rank of one attempt runs."""

    job: str
    attempt: int
    fence: int
    ranks: tuple[Place, ...]

    @property
    def nodes(self) -> tuple[str, ...]:
        """The node of each slot, in slot order."""
        return tuple(place.node for place in self.ranks)

    def common(self) -> dict[str, str]:
        """What a launcher sets for every rank alike."""
        nodes = self.nodes
        return {
            "OUTRIDER_JOB": self.job, "OUTRIDER_ATTEMPT": str(self.attempt), "OUTRIDER_FENCE": str(self.fence),
            "WORLD_SIZE": str(len(nodes)), "MASTER_ADDR": nodes[0],
        }  # fmt: skip

    def environment(self, rank: int) -> dict[str, str]:
        """What a launcher sets for one rank. LOCAL_RANK: its place on its node; GROUP_RANK: the node's place."""
        nodes = self.nodes
        return self.common() | {
            "RANK": str(rank), "LOCAL_RANK": str(nodes[:rank].count(nodes[rank])),
            "GROUP_RANK": str(list(dict.fromkeys(nodes)).index(nodes[rank])), "OUTRIDER_SLOT": str(rank),
        }  # fmt: skip


def make_map(job: str, attempt: int, fence: int, nodes: Sequence[str]) -> RankMap:
    """`nodes[slot]` is the node of each slot."""
    ranks = tuple(Place(rank=slot, slot=slot, node=node) for slot, node in enumerate(nodes))
    return RankMap(job=job, attempt=attempt, fence=fence, ranks=ranks)


def told(order: Data) -> list[str]:
    """The node of each slot before the restart, as the order tells it; empty where it does not."""
    nodes = [node or "" for node in order.slots]
    for item in order.replace:
        if item.slot < len(nodes):
            nodes[item.slot] = item.from_
    return nodes if all(nodes) else []


def moved(nodes: Sequence[str], replace: Sequence[Replace], free: Sequence[str]) -> list[str]:
    """The nodes after the replacement; a slot that is already on its new node stays (a repeated order). Pure.

    Args:
        free: nodes that may be taken where the order names none (`to` is null), best first.

    Raises:
        SchedulerError: a slot that does not exist, or no node for one.
    """
    result = list(nodes)
    chosen: dict[str, str] = {}
    for item in replace:
        if item.slot >= len(result):
            raise SchedulerError(f"the job has no slot {item.slot}", "strange_answer", again=False)
        if result[item.slot] != item.from_:
            continue
        target = item.to or chosen.get(item.from_)
        if target is None:
            target = next((node for node in free if node not in result and node not in chosen.values()), None)
            if target is None:
                raise SchedulerError(f"no free node for slot {item.slot}", "no_spare", again=True)
        chosen[item.from_] = target
        result[item.slot] = target
    return result


def plain_name(job: str, fits: str, strange: str, size_max: int) -> str:
    """A job's name where only names like `fits` are taken. Any other loses what `strange` matches and carries a hash of itself:
    no two jobs share a name."""
    if len(job) <= size_max and re.fullmatch(fits, job, re.ASCII):
        return job
    digest = hashlib.blake2s(job.encode("utf-8", "backslashreplace"), digest_size=4).hexdigest()
    name = re.sub(strange, "-", job.lower())[: size_max - len(digest) - 1].strip(".-")
    return f"{name or 'job'}-{digest}"


def file_name(job: str) -> str:
    """A job's name as a file's name: nothing that leads out of the folder, and room for `.ranks.json` and a temporary name."""
    return plain_name(job, r"[A-Za-z0-9_-][A-Za-z0-9._-]*", r"[^a-z0-9._-]+", 200)


def write_map(folder: Path, ranks: RankMap) -> Path:
    """Writes the three files, each by a temporary name and rename. Returns the path of the rank map.

    Raises:
        UnwritableError: the folder does not take them; a person mends it.
    """
    name = file_name(ranks.job)
    lines = (f"{key}={shlex.quote(value)}\n" for key, value in ranks.common().items())
    path = folder / f"{name}.ranks.json"
    write_whole(folder / f"{name}.env", "".join(lines).encode())
    write_whole(folder / f"{name}.hosts", "".join(f"{node}\n" for node in ranks.nodes).encode())
    write_whole(path, msgspec.json.format(msgspec.json.encode(ranks), indent=1) + b"\n")
    return path


def read_map(folder: Path, job: str) -> RankMap | None:
    """The map of a job's latest attempt that we wrote; None: there is none.

    Raises:
        DamagedError: it is there and no map of this job.
        SchedulerError: it cannot be read now.
    """
    path = folder / f"{file_name(job)}.ranks.json"
    try:
        known = msgspec.json.decode(path.read_bytes(), type=RankMap)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SchedulerError(f"{path}: the rank map cannot be read: {error.strerror}", "unreadable", again=True) from None
    except UNREADABLE as error:
        raise DamagedError(path, error) from None
    if known.job != job or not known.ranks or any(place.slot != slot or not place.node for slot, place in enumerate(known.ranks)):
        raise DamagedError(path, f"it is no rank map of {job}")
    return known


def read_hosts(folder: Path, job: str) -> list[str]:
    """The node of each slot as the host file has it; empty where there is none that can be read."""
    try:
        return (folder / f"{file_name(job)}.hosts").read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError):
        return []


def fits(slots: Sequence[str], nodes: Sequence[str], replace: Sequence[Replace]) -> bool:
    """Whether slots can be those of an attempt on `nodes` (empty: not known) of which `replace` moves some. Pure."""
    if not slots or (nodes and set(slots) != set(nodes)):
        return False
    return all(item.slot < len(slots) and slots[item.slot] in (item.from_, item.to) for item in replace)


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file by a temporary name, sync and rename, and makes its folder.

    Raises:
        UnwritableError: the folder does not take it; what was there before still is.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise UnwritableError(f"{error.filename or path}: it cannot be written: {error.strerror}") from None
