"""The switches' ends of the cables: each belongs to the node's end that moved at the same time, if there is one."""

from detectors.core.rules.port_book import FLAP_WINDOW, SAME_BLINK_SECONDS, PortBook
from detectors.core.types import Evidence
from outrider.signals import Signal


class SwitchEnds:
    """Judges ports of switches for one witness.

    Args:
        book: the nodes' ports.
    """

    def __init__(self, book: PortBook) -> None:
        self._book = book
        #: (switch, port) -> since when it is down without a node's end that went down with it.
        self._down: dict[tuple[str, str], float] = {}

    def link(self, signal: Signal, state: str, now: float) -> None:
        """A switch's port went `down`, or up."""
        assert signal.switch is not None
        leaf, number = signal.switch, str(signal.port)
        node, nic = signal.data.get("peer_node"), signal.data.get("peer_nic")
        for port in self._book.ports.values():
            mine = (port.node, port.nic) == (node, nic) if node else self._book.world.node[port.node].nics.get(port.nic) == leaf
            near = port.down_since is not None and now - port.down_since <= SAME_BLINK_SECONDS
            if mine and (near or now - port.up_t <= SAME_BLINK_SECONDS):
                if state == "down":
                    self._book.note(port, signal, now, f"the other end, port {number} of {leaf}, went down too")
                return
        key = (leaf, number)
        subject = {"switch": leaf, "port": number}
        if state == "down":
            self._down.setdefault(key, now)
            piece = Evidence(
                t=now, kind="link", subject=subject, effect="confirm", text=signal.text or f"port {number} of {leaf} is down"
            )
            self._book.docket.accuse(
                "link.flapping", subject, now=now, evidence=(piece,), reason=f"port {number} of {leaf} is down", response="watch",
                reason_code="switch_side", lasts=FLAP_WINDOW,
            )  # fmt: skip
        elif self._down.pop(key, None) is not None:
            self._book.docket.clear_subject("link.flapping", subject, now, "it is up again")
