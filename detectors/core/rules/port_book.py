"""The network ports that one witness knows, and what is said of one: noted as evidence, counted as a blink, accused."""

from detectors.core.docket import Docket
from detectors.core.rules.shared_ports import Port
from detectors.core.types import Evidence
from detectors.core.world import World
from outrider.signals import Signal

#: Ports kept: 12,500 nodes with 16 ports, and as many again.
PORTS_MAX = 400_000
#: So many blinks within `FLAP_WINDOW` make a link that flaps (public monitors use 3 in 12 h, or every single one).
FLAPS, FLAP_WINDOW = 3, 3600.0
#: A counter that says what a `link` signal said within this time is the same blink.
SAME_BLINK_SECONDS = 60.0
#: A degraded device that nobody speaks of any more is forgotten; agents say what stands again long before.
DEGRADED_SECONDS = 3600.0


class PortBook:
    """`ports`: (node, device, port number) -> what is known of it."""

    def __init__(self, world: World, docket: Docket) -> None:
        self.world, self.docket = world, docket
        self.ports: dict[tuple[str, str, str], Port] = {}

    def find(self, signal: Signal) -> Port | None:
        """The port that a signal is about; None (counted): of no known node, or there are too many."""
        node = signal.node
        if node not in self.world.row or signal.nic is None:
            self.world.count("port of an unknown node")
            return None
        number = str(signal.port if signal.port is not None else 1)
        key = (str(node), signal.nic, number)
        port = self.ports.get(key)
        if port is None and len(self.ports) < PORTS_MAX:
            port = self.ports[key] = Port(*key)
        return port

    def note(self, port: Port, signal: Signal | None, now: float, text: str) -> None:
        """Keeps a signal, or a sentence, as evidence about the port."""
        text = signal.text if signal is not None and signal.text else text
        if len(port.told) < 8 and all(piece.text != text for piece in port.told):
            kind = signal.kind if signal is not None else "port_counters"
            port.told.append(Evidence(t=now, kind=kind, subject=port.subject(), effect="confirm", text=text))

    def accuse(
        self, port: Port, fault: str, now: float, text: str, code: str, response: str | None = None, lasts: float | None = None
    ) -> None:
        """Doubts the port, with all that was noted."""
        if fault == "nic.down":
            port.accused = fault
        self.docket.accuse(
            fault, port.subject(), now=now, evidence=tuple(port.told), reason=text, reason_code=code, response=response,
            lasts=lasts, extra={"leaf": self.world.node[port.node].nics.get(port.nic)},
        )  # fmt: skip

    def degrade(self, port: Port, now: float, text: str, code: str) -> None:
        """The device works, and one thing (`code`) is not as it should be."""
        port.degraded[code] = now + DEGRADED_SECONDS
        self.accuse(port, "nic.degraded", now, text, code, lasts=DEGRADED_SECONDS)

    def restore(self, port: Port, now: float, text: str, code: str) -> None:
        """That one thing is well (again): the doubt ends unless another stands. Full speed says nothing of a module's heat."""
        port.degraded.pop(code, None)
        if all(until <= now for until in port.degraded.values()):
            self.docket.clear_subject("nic.degraded", port.subject(), now, text)

    def flaps(self, port: Port, now: float) -> None:
        """A blink more: one is counted and shown, several within the window make a link that flaps."""
        recent = [when for when in port.blinks if now - when <= FLAP_WINDOW]
        name = f"{port.nic} port {port.port} of {port.node}"
        if len(recent) >= FLAPS:
            text = f"{name} went down {len(recent)} times within {now - recent[0]:.0f} s"
            self.accuse(port, "link.flapping", now, text, "flapping", lasts=FLAP_WINDOW)
        else:
            text = f"{name} went down and came back"
            self.accuse(port, "link.flapping", now, text, "blink", response="watch", lasts=SAME_BLINK_SECONDS)
