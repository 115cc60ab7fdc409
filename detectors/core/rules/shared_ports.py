"""Ports that are dark together: the switch, rail, rack or feed that they share is one incident, and its name is told.

It moves nobody: the nodes behind it are well.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from detectors.core.docket import Docket
from detectors.core.identity import vote_key
from detectors.core.types import Evidence
from detectors.core.world import World

#: Ports that go dark within this time are judged together.
SETTLE_SECONDS = 2.0
#: What ports share -> the fault and the subject key of its fall.
SHARED = {
    "switch": ("switch.down", "switch"), "spine": ("switch.down", "switch"), "rail": ("domain.lost", "rail"),
    "rack": ("domain.lost", "rack"), "power": ("domain.lost", "power"),
}  # fmt: skip
OF_SHARED = frozenset(fault for fault, _ in SHARED.values())

Locate = Callable[[set[tuple[str, ...]], set[tuple[str, ...]]], list[Any]]


@dataclass(slots=True)
class Port:
    """One port of one network device."""

    node: str
    nic: str
    port: str
    down_since: float | None = None
    up_t: float = float("-inf")
    blinks: deque[float] = field(default_factory=lambda: deque(maxlen=32))
    counters: dict[str, float] = field(default_factory=dict)
    read_t: float = float("-inf")
    bad: dict[str, int] = field(default_factory=dict)
    told: list[Evidence] = field(default_factory=list)
    accused: str = ""
    #: A rank of the node ended while it was dark, or two peers at least lost the node: the job has felt it, nobody waits.
    ended: bool = False
    #: Why the device is degraded (slow, its module): reason code -> until when that holds if nobody says it again.
    degraded: dict[str, float] = field(default_factory=dict)
    #: Transport errors over this port after a blink: they count if the job then stands still.
    lost: list[Evidence] = field(default_factory=list)

    def subject(self) -> dict[str, Any]:
        return {"node": self.node, "nic": self.nic, "port": self.port}


class SharedPorts:
    """What is dark together, for one witness.

    Args:
        world, docket: what is known, where suspicions are kept.
        locate: failing and working parts -> common causes (the graph's answer).
    """

    def __init__(self, world: World, docket: Docket, locate: Locate) -> None:
        self.world, self.docket, self.locate = world, docket, locate
        #: leaf -> ports that are known to hang on it.
        self._leaf_ports = Counter(leaf for node in world.fleet.nodes for leaf in node.nics.values())
        #: (subject key, name) of a switch or another thing that ports share -> ports that its fall explains.
        self.fallen: dict[tuple[str, str], list[Port]] = {}

    def look(self, dark: list[Port], known: Iterable[Port], now: float) -> None:
        """Asks what the ports that are dark share; `known` are all ports that told of themselves."""
        failing: set[tuple[str, ...]] = {("port", port.node, port.nic) for port in dark}
        begun = min(port.down_since or now for port in dark)
        working: set[tuple[str, ...]] = {
            ("port", port.node, port.nic) for port in known if port.down_since is None and port.up_t >= begun
        }  # fmt: skip
        for cause in self.locate(failing, working):
            parts = set(cause.parts)
            ports = [port for port in dark if ("port", port.node, port.nic) in parts]
            self._share(cause.level, cause.name, cause.share, ports, now)
        for leaf, ports in self._small_leaves([port for port in dark if port.accused not in OF_SHARED]):
            self._share("switch", leaf, 1.0, ports, now)

    def _small_leaves(self, dark: list[Port]) -> list[tuple[str, list[Port]]]:
        """Leaves with two known ports, too few for the graph to count, both of which went dark at once, on two nodes.

        Two cards of two machines do not fail within two seconds; and if they did, a person looks at the leaf first.
        """
        below: dict[str, list[Port]] = {}
        for port in dark:
            if (leaf := self.world.node[port.node].nics.get(port.nic)) is not None:
                below.setdefault(leaf, []).append(port)
        return [
            (leaf, ports)
            for leaf, ports in sorted(below.items())
            if len({port.node for port in ports}) == len(ports) == self._leaf_ports[leaf] == 2
            and abs((ports[0].down_since or 0.0) - (ports[1].down_since or 0.0)) <= SETTLE_SECONDS
        ]

    def _share(self, level: str, name: str, share: float, ports: list[Port], now: float) -> None:
        fault, key = SHARED[level]
        replaced = self._replaced((key, name), ports)
        self.fallen[key, name] = ports
        for port in ports:
            if port.accused and port.accused not in OF_SHARED:
                subject = {"node": port.node} if port.accused == "node" else port.subject()
                self.docket.clear_subject("nic.down", subject, now, f"all ports of {name} are dark")
            port.accused = fault
        self._shared_down(fault, {key: name}, share, ports, replaced, now)

    def _replaced(self, vertex: tuple[str, str], ports: list[Port]) -> list[tuple[str, str]]:
        """What was named for some of these ports before more of them went dark."""
        mine = {id(port) for port in ports}
        return [other for other, old in self.fallen.items() if other != vertex and all(id(port) in mine for port in old)]

    def _shared_down(
        self, fault: str, subject: dict[str, Any], share: float, ports: list[Port], before: list[tuple[str, str]], now: float
    ) -> None:
        nodes = sorted({port.node for port in ports})
        [(key, name)] = subject.items()
        text = f"{len(ports)} ports of {len(nodes)} nodes went dark together, {share:.0%} of what hangs on {key} {name}"
        pieces = [piece for port in ports[:6] for piece in port.told[:1]]
        extra: dict[str, Any] = {"nodes": nodes, "ports": len(ports)}
        if before:
            extra["replaces"] = [vote_key(_fault(old_key), {old_key: old}, "") for old_key, old in before]
        self.docket.accuse(
            fault, subject, now=now, evidence=tuple(pieces), reason=text, reason_code=f"common_{key}", decisive=True, extra=extra,
        )  # fmt: skip
        for old_key, old in before:
            del self.fallen[old_key, old]
            self.docket.clear_subject(_fault(old_key), {old_key: old}, now, text)

    def explains(self, accuser: str | None, accused: str | None, device: Any, piece: Evidence, now: float) -> bool:
        """Whether the loss of a peer follows from what is down; then it is evidence of that."""
        for (key, name), ports in self.fallen.items():
            if any(port.node in (accuser, accused) and device in (None, port.nic) for port in ports):
                known = self.docket.find(_fault(key), {key: name})
                if known is not None:
                    self.docket.accuse(
                        known.fault, {key: name}, now=now, evidence=(piece,), reason=known.reason, reason_code=known.reason_code,
                        decisive=True,
                    )  # fmt: skip
                return True
        return False

    def up(self, port: Port, now: float) -> None:
        """A port is up again; when all are, what they share is."""
        for (key, name), ports in list(self.fallen.items()):
            if port in ports and all(one.down_since is None for one in ports):
                self.docket.clear_subject(_fault(key), {key: name}, now, "its ports are up again")
                del self.fallen[key, name]


def _fault(key: str) -> str:
    """The fault of what is named by a subject key."""
    return "switch.down" if key == "switch" else "domain.lost"
