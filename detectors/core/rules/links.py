"""Network ports: dark ones, flapping ones and slow ones; counters and the switches' ends have files of their own.

One port that went dark and came back is counted and shown, nothing more. Ports that are dark together are first asked what
they share; only what has no common cause is a port's own matter, and a port alone moves nobody while its job steps on.
"""

from detectors.core.docket import Docket
from detectors.core.rules.port_book import FLAP_WINDOW, PortBook
from detectors.core.rules.port_counters import PortCounters
from detectors.core.rules.shared_ports import OF_SHARED, SETTLE_SECONDS, Locate, Port, SharedPorts
from detectors.core.rules.switch_ends import SwitchEnds
from detectors.core.types import Evidence
from detectors.core.world import JobState, World
from outrider.signals import Signal

#: A port that is dark for longer is down, not blinking. Link training after a blip takes up to 10 s.
DOWN_SECONDS = 15.0
#: Complaints of ranks are matched with ports that went dark this long before.
COMPLAINT_SECONDS = 120.0
#: So many ranks whose transport over a dark port broke for good, and the job has lost it, whether it comes back or not.
ACCUSERS_MIN = 2
#: A dark port whose job steps on is told to a person after this.
PAGE_AFTER_SECONDS = 60.0


class LinkRule:
    """Judges ports for one witness.

    Args:
        world, docket: what is known, where suspicions are kept.
        locate: failing and working parts -> common causes (the graph's answer).
    """

    def __init__(self, world: World, docket: Docket, locate: Locate) -> None:
        self.world, self.docket = world, docket
        self.shared = SharedPorts(world, docket, locate)
        self.book = PortBook(world, docket)
        self.counters = PortCounters(self.book)
        self._switches = SwitchEnds(self.book)
        #: Nodes all of whose ports are dark, to be told to the rule of silence: (node, text).
        self.dark_nodes: list[tuple[str, str]] = []
        self._due: float = float("inf")
        self._standing: dict[str, float] = {}

    # --- what comes in ---

    def link(self, signal: Signal, now: float) -> None:
        """A port went up or down, at the node's end or at the switch's."""
        state = str(signal.data.get("state", signal.value)).lower()
        if signal.switch is not None and signal.nic is None:
            self._switches.link(signal, state, now)
            return
        port = self.book.find(signal)
        if port is None:
            return
        if state == "down":
            if port.down_since is None:
                port.down_since = now
                self.book.note(port, signal, now, f"{port.nic} port {port.port} of {port.node} went down")
            self._look_at(now + SETTLE_SECONDS)
            return
        if port.down_since is not None:
            self._up(port, signal, now)
        rate, most = signal.data.get("rate_gbps"), signal.data.get("rate_max_gbps")
        slow = isinstance(rate, int | float) and isinstance(most, int | float) and 0 < rate < most
        if slow:
            text = f"{port.nic} of {port.node} runs at {rate} of {most} Gb/s"
            self.book.degrade(port, now, text, "slow")
        elif rate is not None:
            self.book.restore(port, now, "full speed again", "slow")

    def complaint(self, signal: Signal, accuser: str | None, accused: str | None, now: float) -> bool:
        """A rank lost its peer: True if a dark port at either end explains it."""
        device = signal.data.get("device")
        text = signal.text or f"rank {signal.rank} lost its peer on {accused} over {device}"
        piece = Evidence(
            t=now, kind="collective_error", subject={"job": signal.job, "rank": signal.rank}, effect="confirm", text=text,
            layer="communication",
        )  # fmt: skip
        if self.shared.explains(accuser, accused, device, piece, now):
            return True
        found = False
        for port in self.book.ports.values():
            dark = port.down_since is not None or now - port.up_t <= COMPLAINT_SECONDS
            if port.node in (accuser, accused) and dark and device in (None, port.nic) and port.told:
                port.told.append(piece)
                del port.told[8:]
                found = True
            elif port.node in (accuser, accused) and dark and device == port.nic and len(port.lost) < 8:
                port.lost.append(piece)
                if now - self._standing.get(signal.job or "", float("-inf")) <= COMPLAINT_SECONDS:
                    self._not_recovered(port, now)
        if found:
            self._look_at(now)
        return found

    def stands(self, job: str, now: float, text: str) -> None:
        """A job stands still: its dark ports are judged with that in mind."""
        self._standing[job] = now
        state = self.world.jobs.get(job)
        for port in self.book.ports.values():
            if port.down_since is not None and state is not None and port.node in state.node_ranks:
                piece = Evidence(t=now, kind="step", subject={"job": job}, effect="confirm", text=text, layer="application")
                if all(one.kind != "step" for one in port.told):
                    port.told.append(piece)
                self._look_at(now)
            elif port.lost and state is not None and port.node in state.node_ranks and now - port.up_t <= COMPLAINT_SECONDS:
                self._not_recovered(port, now)

    def _not_recovered(self, port: Port, now: float) -> None:
        """The port is up again, but transport over it broke and the job stands: it was no blink for the job."""
        text = f"{port.nic} port {port.port} of {port.node} went down and came back, and transport over it did not recover"
        for piece in port.lost:
            if piece not in port.told:
                port.told.append(piece)
        self.book.accuse(port, "link.flapping", now, text, "blink_and_lost", response="restart", lasts=FLAP_WINDOW)

    def undecided(self, state: JobState, node: str, now: float) -> float | None:
        """Until when it is open whether a port that the job needs is down or only blinks; None: nothing is open."""
        young = [since + SETTLE_SECONDS for _, since in self._dark(state, node, now) if since + SETTLE_SECONDS > now]
        return max(young, default=None)

    def has_dark(self, state: JobState, node: str, now: float) -> bool:
        """Whether a port of the node that the job needs has been dark for longer than a common cause takes to show."""
        return any(now - since >= SETTLE_SECONDS for _, since in self._dark(state, node, now))

    def exit(self, state: JobState, rank: int, node: str, text: str, now: float) -> bool:
        """A rank ended on a node with a dark port: True, and the port is judged with that as its second layer."""
        ports = [port for port, _ in self._dark(state, node, now) if port.accused not in OF_SHARED]
        piece = Evidence(
            t=now, kind="process_exit", subject={"job": state.name, "rank": rank}, effect="confirm", text=text, layer="application"
        )
        for port in ports:
            port.ended = True
            if len(port.told) < 8 and all(one.text != text for one in port.told):
                port.told.append(piece)
        if ports:
            self._look_at(now)
        return bool(ports)

    def _dark(self, state: JobState, node: str, now: float) -> list[tuple[Port, float]]:
        """Ports that went dark lately, and the job has not finished a step since that began later: it needs them."""
        life = state.life_of(node)
        return [
            (port, port.down_since)
            for port in self.book.ports.values()
            if port.node == node and port.down_since is not None and now - port.down_since <= COMPLAINT_SECONDS
            and life <= port.down_since
        ]  # fmt: skip

    # --- time ---

    def advance(self, now: float) -> None:
        """Judges all ports that are dark."""
        self._due = float("inf")
        dark = [port for port in self.book.ports.values() if port.down_since is not None]
        if not dark:
            return
        self.shared.look(dark, self.book.ports.values(), now)
        by_node: dict[str, list[Port]] = {}
        for port in dark:
            if port.accused not in OF_SHARED:
                by_node.setdefault(port.node, []).append(port)
        for node, ports in sorted(by_node.items()):
            nics = self.world.node[node].nics
            if len(nics) >= 2 and len(ports) >= len(nics):
                self.dark_nodes.append((node, f"all {len(ports)} network ports of {node} are dark"))
            if len(ports) >= 2 and 2 * len(ports) >= len(nics):
                self._together(node, ports, now)
            else:
                for port in ports:
                    self._alone(port, now)

    def next_due(self) -> float:
        """When `advance` has something to do."""
        return self._due

    # --- judgement ---

    def _together(self, node: str, ports: list[Port], now: float) -> None:
        """Most ports of one node are dark: the node (its cards, its cables, its power), not each port by itself."""
        first = min(ports, key=lambda port: port.down_since or now)
        assert first.down_since is not None
        dark = now - first.down_since
        if now < (judged := first.down_since + self._patience(ports)):
            self._look_at(judged)
            return
        pieces = [piece for port in ports for piece in port.told[:2]]
        layers = {piece.layer for port in ports for piece in port.told}
        text = f"{len(ports)} network ports of {node} have been down for {dark:.0f} s"
        response = "restart" if len(layers) > 1 else "page"
        for port in ports:
            if port.accused == "nic.down":
                self.docket.clear_subject("nic.down", port.subject(), now, text)
            port.accused = "node"
        self.docket.accuse(
            "nic.down", {"node": node}, now=now, evidence=tuple(pieces), reason=text, reason_code=f"node_ports_{response}",
            response=response, culprit="node",
        )  # fmt: skip

    def _alone(self, port: Port, now: float) -> None:
        """One dark port: with a second layer the job needs it; without, a person looks at it."""
        assert port.down_since is not None
        dark = now - port.down_since
        if now < (judged := port.down_since + self._patience([port])):
            self._look_at(judged)
            return
        if port.accused == "node":
            self.docket.clear_subject("nic.down", {"node": port.node}, now, "most of its ports are up again")
        layers = {piece.layer for piece in port.told}
        text = f"{port.nic} port {port.port} of {port.node} has been down for {dark:.0f} s"
        if len(layers) > 1:
            self.book.accuse(port, "nic.down", now, text, "down_and_job", response="restart")
        elif now >= port.down_since + PAGE_AFTER_SECONDS or not self.world.jobs_on(port.node):
            self.book.accuse(port, "nic.down", now, text, "down", response="page")
        else:
            self.book.accuse(port, "nic.down", now, text, "down_young", response="watch")
            self._look_at(port.down_since + PAGE_AFTER_SECONDS)

    @staticmethod
    def _patience(ports: list[Port]) -> float:
        """How long dark ports may still turn out to blink: a job that has felt them is not made to wait for that."""
        accusers = {piece.subject.get("rank") for port in ports for piece in port.told if piece.kind == "collective_error"}
        felt = len(accusers) >= ACCUSERS_MIN or any(port.ended for port in ports)
        return SETTLE_SECONDS if felt else DOWN_SECONDS

    def _up(self, port: Port, signal: Signal, now: float) -> None:
        began = port.down_since or now
        port.down_since, port.up_t = None, now
        port.blinks.append(began)
        shared = port.accused in OF_SHARED
        if shared:
            self.shared.up(port, now)
        elif port.accused == "node":
            if all(one.down_since is None for one in self.book.ports.values() if one.node == port.node):
                self.docket.clear_subject("nic.down", {"node": port.node}, now, "its ports are up again")
        elif port.accused:
            self.docket.clear_subject(port.accused, port.subject(), now, f"the port is up again after {now - began:.0f} s")
        port.accused, port.ended = "", False
        port.lost.clear()
        if not shared:  # it went down and came back with its switch: that was told, and is no blink of this port
            self.book.flaps(port, now)
        port.told.clear()

    def _look_at(self, when: float) -> None:
        self._due = min(self._due, when)
