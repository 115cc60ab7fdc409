"""What the site knows about the file in hand: the JSON object of `--context`, typed, with look-ups.

Everything in it is optional, and "unknown" stays unknown: a look-up that finds nothing answers None.
"""

import json
import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from outrider.config.catalogue import CatalogueSection
from outrider.errors import InputError
from outrider.unknown_keys import Note, Shape, UnknownKeys, quiet, unknown_keys

_PCI: Final = re.compile(r"(?:([0-9a-fA-F]{1,8}):)?([0-9a-fA-F]{1,2}):([0-9a-fA-F]{1,2})(?:\.[0-7])?")

#: `job` is not in the context: it is not known whether one runs. `null` in the file means: none runs.
UNKNOWN: Final = "unknown"


def normal_pci(text: str) -> str:
    """One spelling of a PCI address: `dddd:bb:dd` in lower case, no function digit. Other text comes back as it is."""
    match = _PCI.fullmatch(text.strip())
    if not match:
        return text
    domain, bus, device = match.groups()
    return f"{int(domain or '0', 16):04x}:{int(bus, 16):02x}:{int(device, 16):02x}"


def pci_function(text: str) -> str | None:
    """The function digit of a PCI address, if it is written."""
    return text.rpartition(".")[2] if _PCI.fullmatch(text.strip()) and "." in text else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One line of the inventory: a GPU (`index`, `uuid`) or a network device (`nic`, `netdev`, `gid`, `role`)."""

    node: str | None = None
    index: int | None = None
    pci: str | None = None
    uuid: str | None = None
    nic: str | None = None
    netdev: str | None = None
    gid: str | None = None
    role: str | None = None
    function: str | None = None

    @property
    def is_gpu(self) -> bool:
        return self.nic is None and self.netdev is None and self.role is None


@dataclass(frozen=True, kw_only=True)
class Context:
    """The site's knowledge. `job`: a name, None (no job runs there) or `UNKNOWN`."""

    node: str | None = None
    job: str | None = UNKNOWN
    inventory: tuple[Part, ...] = ()
    #: node -> {nic: leaf switch}
    nics: dict[str, dict[str, str]] = field(default_factory=dict)
    #: rank -> (node, gpu)
    ranks: dict[int, tuple[str, int | None]] = field(default_factory=dict)
    #: scrape address -> node; IP address -> node; process id -> name
    instances: dict[str, str] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)
    processes: dict[int, str] = field(default_factory=dict)
    #: seconds allowed in a phase: train_s, eval_s, ..
    limits: dict[str, float] = field(default_factory=dict)
    #: phase of the job when a dump was taken, and how long it had lasted
    phase: str | None = None
    phase_elapsed_s: float | None = None
    expected_gpus: int | None = None
    expected_nics: int | None = None
    expected_nic_gbps: float | None = None
    job_history: Any = None
    snapshots: Any = None
    raw: dict[str, Any] = field(default_factory=dict)
    #: what the site's configuration changes of the catalogue's codes
    overrides: CatalogueSection | None = None

    @property
    def no_job(self) -> bool:
        """The site says that no job runs on the node."""
        return self.job is None

    @property
    def job_name(self) -> str | None:
        """The job's name, or None when there is none or it is not known."""
        return None if self.job in (None, UNKNOWN) else self.job

    @cached_property
    def nodes(self) -> frozenset[str]:
        """Every node that the context names."""
        named = {part.node for part in self.inventory} | set(self.nics) | {node for node, _ in self.ranks.values()}
        named |= set(self.instances.values()) | set(self.addresses.values()) | {self.node}
        return frozenset(node for node in named if node)

    def gpu(
        self, *, node: str | None = None, pci: str | None = None, uuid: str | None = None, index: int | None = None
    ) -> Part | None:
        """The one GPU that fits all that is given (uuid first, then pci, then index), or None."""
        fits = [part for part in self.inventory if part.is_gpu and (not node or not part.node or part.node == node)]
        for name, value in (("uuid", uuid), ("pci", normal_pci(pci) if pci else None), ("index", index)):
            if value is None:
                continue
            found = [part for part in fits if getattr(part, name) == value]
            if len(found) == 1:
                return found[0]
        return None

    def gpu_subject(
        self, *, node: str | None = None, pci: str | None = None, uuid: str | None = None, index: int | None = None
    ) -> dict[str, Any]:
        """All the identities of a GPU that are known: node, gpu, pci, uuid, and the job and rank that sit on it."""
        part = self.gpu(node=node, pci=pci, uuid=uuid, index=index) or Part()
        subject: dict[str, Any] = {
            "node": part.node or node,
            "gpu": part.index if index is None else index,
            "pci": part.pci or (normal_pci(pci) if pci else None),
            "uuid": part.uuid or uuid,
        }
        if subject["gpu"] is not None and (rank := self.rank_at(subject["node"], subject["gpu"])) is not None:
            subject["rank"] = rank
        subject["job"] = self.job_name
        return {key: value for key, value in subject.items() if value is not None}

    def nic(
        self, *, node: str | None = None, nic: str | None = None, netdev: str | None = None, pci: str | None = None
    ) -> Part | None:
        """The network device that fits: by RDMA name, by network interface, or by PCI address with its function."""
        for part in self.inventory:
            if part.is_gpu or (node and part.node and part.node != node):
                continue
            if (nic and part.nic == nic) or (netdev and part.netdev == netdev):
                return part
            if pci and part.pci == normal_pci(pci) and pci_function(pci) in (None, part.function):
                return part
        return None

    def rank_subject(self, rank: int) -> dict[str, Any]:
        """Job, rank, and the node and GPU it runs on where the context says so."""
        node, gpu = self.ranks.get(rank, (None, None))
        subject = {"job": self.job_name, "rank": rank, "node": node, "gpu": gpu}
        return {key: value for key, value in subject.items() if value is not None}

    def rank_at(self, node: str | None, gpu: int | None) -> int | None:
        """The rank that sits on a GPU of a node."""
        return next((rank for rank, place in self.ranks.items() if place == (node, gpu)), None)

    def ranks_on(self, node: str) -> list[int]:
        return sorted(rank for rank, (where, _) in self.ranks.items() if where == node)

    def node_at(self, address: str) -> str | None:
        """The node behind an IP address, `ip<port>`, `ip:port`, scrape instance or host name."""
        for key in (address, address.partition("<")[0], address.rpartition(":")[0], address.strip("[]")):
            if found := self.addresses.get(key) or self.instances.get(key):
                return found
        for part in self.inventory:
            if part.gid and part.gid == address:
                return part.node
        return address if address in self.nodes else None


#: What is read of a context file; who reads `job_history` and `snapshots` takes what they hold.
_SHAPE: Final[Shape] = {
    **dict.fromkeys(("node", "job", "ranks", "instances", "addresses", "processes", "limits", "job_history", "snapshots")),
    "inventory": [dict.fromkeys(("node", "index", "pci", "uuid", "nic", "netdev", "gid", "role"))],
    "topology": {"nics": None},
    "phase": {"name": None, "elapsed_s": None},
    "expected": {"gpus": None, "nics": None, "nic_gbps": None},
}


def load_context(path: Path | None, note: Note = quiet) -> Context:
    """Reads a context file. `note` is told of keys that nobody reads.

    Raises:
        InputError: it cannot be read, is no JSON object, or a key has the wrong shape.
    """
    if path is None:
        return Context()
    try:
        text = path.read_text(encoding="utf-8")
        raw = json.loads(text)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", file=str(path)) from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"is not JSON: {error}", file=str(path)) from None
    if not isinstance(raw, dict):
        raise InputError("must be a JSON object", file=str(path))
    context = make_context(raw, str(path))
    strange = UnknownKeys(str(path), note)
    for key, near in unknown_keys(raw, _SHAPE):
        at = text.find(json.dumps(key.rpartition(".")[2], ensure_ascii=False))
        strange.tell([(key, near)], text.count("\n", 0, at) + 1 if at >= 0 else None)
    return context


def make_context(raw: dict[str, Any], file: str = "context") -> Context:
    """A context from its JSON object. Raises InputError, which names the key."""

    def table(key: str) -> dict[str, Any]:
        value = raw.get(key) or {}
        if not isinstance(value, dict):
            raise InputError("must be an object", file=file, key=key)
        return value

    def number(where: dict[str, Any], key: str, place: str) -> float | None:
        return _number(where.get(key), f"{place}.{key}", file)

    def whole(where: dict[str, Any], key: str, place: str) -> int | None:
        value = number(where, key, place)
        return None if value is None else int(value)

    for key in ("node", "job"):
        if raw.get(key) is not None and not isinstance(raw[key], str | int):
            raise InputError("must be a text", file=file, key=key)
    expected, phase = table("expected"), table("phase")
    return Context(
        node=raw.get("node"),
        job=UNKNOWN if "job" not in raw else None if raw["job"] is None else str(raw["job"]),
        inventory=tuple(_parts(raw.get("inventory") or [], file)),
        nics={node: dict(nics) for node, nics in table("topology").get("nics", {}).items() if isinstance(nics, dict)},
        ranks=_ranks(table("ranks"), file),
        instances={key: str(value) for key, value in table("instances").items()},
        addresses={key: str(value) for key, value in table("addresses").items()},
        processes={int(key): str(value) for key, value in table("processes").items() if key.isdecimal()},
        limits={key: float(number(table("limits"), key, "limits") or 0) for key in table("limits")},
        phase=phase.get("name"),
        phase_elapsed_s=number(phase, "elapsed_s", "phase"),
        expected_gpus=whole(expected, "gpus", "expected"),
        expected_nics=whole(expected, "nics", "expected"),
        expected_nic_gbps=number(expected, "nic_gbps", "expected"),
        job_history=raw.get("job_history"),
        snapshots=raw.get("snapshots"),
        raw=raw,
    )


def _number(value: Any, key: str, file: str) -> float | None:
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        return value
    raise InputError("must be a number", file=file, key=key)


def _parts(rows: Any, file: str) -> list[Part]:
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InputError("must be a list of objects", file=file, key="inventory")
    known = ("node", "index", "uuid", "nic", "netdev", "gid", "role")
    parts = []
    for row in rows:
        pci = row.get("pci")
        shown = {key: row[key] for key in known if row.get(key) is not None}
        parts.append(Part(**shown, pci=normal_pci(pci) if pci else None, function=pci_function(pci) if pci else None))
    return parts


def _ranks(rows: dict[str, Any], file: str) -> dict[int, tuple[str, int | None]]:
    ranks: dict[int, tuple[str, int | None]] = {}
    for key, place in rows.items():
        if not key.isdecimal() or not isinstance(place, list | tuple) or not place:
            raise InputError("must be a rank with [node, gpu]", file=file, key=f"ranks.{key}")
        ranks[int(key)] = (str(place[0]), place[1] if len(place) > 1 and isinstance(place[1], int) else None)
    return ranks
