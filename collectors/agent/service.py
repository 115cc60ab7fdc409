"""The agent's edge: puts the parts together and runs them until SIGTERM."""

import sys
from collections.abc import Callable, Iterable
from importlib.metadata import version
from typing import Any

import structlog

from collectors.agent.beat import BeatPort, Heart, family_of, heartbeat_places
from collectors.agent.local import LocalServer
from collectors.agent.loop import Loop
from collectors.agent.metrics import Family, MetricsPage, MetricsServer
from collectors.agent.orders import OrderGate
from collectors.agent.probe import Prober
from collectors.agent.ranks import Ranks
from collectors.agent.slots import SlotTable
from collectors.agent.spool import Spool
from collectors.agent.state import Folders, boot_id, next_start
from collectors.agent.transport import WitnessLink
from outrider.config.agent import AgentSection
from outrider.config.fleet import FleetSection
from outrider.config.security import SecuritySection
from outrider.config.site import Config
from outrider.config.witness import WitnessSection
from outrider.errors import InputError
from outrider.signals import Signal
from outrider.wire import Order

#: Where the agent listens when `[fleet]` does not name an address for the node.
LOOPBACK = "127.0.0.1"


class Agent:
    """One node's agent.

    Args:
        config: the whole file.
        node: which node of `[fleet]` this is.

    Raises:
        InputError: a setting, a port, a folder or a secret cannot be used.
    """

    def __init__(self, config: Config, node: str) -> None:
        self.section = config.get(AgentSection)
        members = config.get(WitnessSection).members
        if not members:
            raise InputError("names no witness", key="witness.members")
        security = config.get(SecuritySection)
        keys, token = security.heartbeat_keys(), security.agent_tokens()[0]
        self.node, self.address = node, _address(config.get(FleetSection), node)
        self.log = structlog.get_logger().bind(node=node)
        self.loop = Loop(self._failed)
        self.page = MetricsPage(self.section.metrics_seconds)
        self._metrics = _metrics_server(self.page, self.section, self.address, security)
        self._port = BeatPort(self.address, self.section.udp_port)
        self._heart_places = heartbeat_places(members, family_of(self.address))
        self.folders = Folders(self.section, node)
        self.boot, self.start = boot_id(), next_start(self.folders.state)
        self._build(config, keys, token)

    def _build(self, config: Config, keys: tuple[bytes, ...], token: str) -> None:
        members = config.get(WitnessSection).members
        section, clock = self.section, self.loop.clock
        self.spool = Spool(
            self.folders.state / "spool", tuple(member.name for member in members),
            node=self.node, boot=self.boot, start=self.start, bytes_max=section.spool_bytes_max,
        )  # fmt: skip
        self.links = [
            WitnessLink(
                node=self.node, boot=self.boot, member=member, token=token, spool=self.spool,
                wait_seconds=section.order_wait_seconds, on_orders=self._orders_came,
            )
            for member in members
        ]  # fmt: skip
        self.heart = Heart(self._port, self._heart_places, keys, (self.node, self.boot, self.start), self._lag, clock.monotonic)
        self.gate = OrderGate(self.folders.run / "orders.json")
        self.prober = Prober(self.loop, self.address, section.probe_seconds)
        self.ranks = Ranks(
            loop=self.loop, node=self.node, boot=self.boot, table=SlotTable(self.folders.slots, self.boot),
            emit=self.spool.add, step_seconds=section.step_signal_seconds,
            launchers=lambda: self.server.callers("launcher"),
        )  # fmt: skip
        self.server = LocalServer(self.loop, self.folders.socket, self.node, section.users, self.ranks)
        self.page.sources.append(self._families)

    def run(self) -> None:
        """Runs until SIGTERM or SIGINT, then gives everything back; memory files of slots stay for the next agent."""
        self.loop.stop_on_signals()
        self.ranks.adopt()
        self.spool.begin()
        for link in self.links:
            link.begin()
        if self._metrics is not None:
            self._metrics.begin()
        self.loop.watch(self._port, self._port.answer)
        self.loop.every(self.section.heartbeat_seconds, self._beat)
        self.loop.every(self.section.page_seconds, self.ranks.look)
        self.log.info("agent started", boot=self.boot, start=self.start, udp_port=self._port.port)
        self.loop.run()
        self._end()

    def _end(self) -> None:
        self.log.info("agent ends")
        for link in self.links:
            link.stop()
        self.server.close()
        if self._metrics is not None:
            self._metrics.close()
        self.spool.close()
        self._port.close()
        self.folders.close()
        self.loop.close()

    def _beat(self) -> None:
        self.heart.beat()

    def _lag(self) -> float:
        return round(max(0.0, self.loop.lag_seconds), 6)

    def _orders_came(self, witness: str, orders: list[Order]) -> None:
        self.loop.post(lambda: self._obey_all(witness, orders))

    def _obey_all(self, witness: str, orders: list[Order]) -> None:
        for order in orders:
            if self.gate.admit(order):
                self._obey(witness, order)

    def _obey(self, witness: str, order: Order) -> None:
        if order.order != "probe":
            count = self.ranks.obey(order)
            self.log.info("order", witness=witness, order=order.order, id=order.id, job=order.job, fence=order.fence,
                          incident=order.incident, ranks=count)  # fmt: skip
            return
        if order.node is None or order.address is None or order.port is None:
            self.log.warning("order that names no target", witness=witness, id=order.id)
            return

        def done(answer: str, seconds: float) -> None:
            data = {"by": self.node, "answer": answer, "seconds": round(seconds, 6), "order": order.id}
            now = self.loop.clock.monotonic()
            self.spool.add(Signal(t=now, kind="probe", node=order.node, source="agent", value=answer, data=data))

        self.prober.probe(order.address, order.port, order.closed_port or self.section.closed_port, done)

    def _failed(self, error: BaseException) -> None:
        self.log.error("a part of the agent failed", error=repr(error), exc_info=error)

    def _families(self) -> Iterable[Family]:
        node = {"node": self.node}

        def counter(name: str, text: str, value: float) -> Family:
            return Family(f"outrider_agent_{name}", "counter", text, [(node, value)])

        build = {"version": version("outrider"), "python": sys.version.split()[0], "room": "agent"}
        yield Family("outrider_build_info", "gauge", "Version of the program; the value is always 1.", [(build, 1.0)])
        yield counter("heartbeats", "Heartbeats made.", self.heart.seq)
        yield counter("heartbeats_unsent", "Datagrams that the kernel did not take.", self._port.unsent)
        yield counter("probes_answered", "Nonces answered.", self._port.answered)
        yield counter("datagrams_strange", "Datagrams at the agent's port that were no question.", self._port.strange)
        yield counter("orders_repeated", "Orders heard again.", self.gate.repeated)
        yield counter("orders_stale", "Orders dropped because their fence is old.", self.gate.stale)
        yield counter("commands", "Words given to local ranks.", self.ranks.commands)
        yield counter("signals_dropped", "Signals lost because memory and disk were full.", self.spool.dropped)
        yield counter("spool_errors", "Failed writes of the spool.", self.spool.disk_errors)
        yield counter("socket_refusals", "Callers turned away.", self.server.strangers)
        yield counter("socket_bad_lines", "Lines that made no sense.", self.server.bad_lines)
        yield counter("events_dropped", "Events of ranks above their rate.", self.server.events_dropped)
        yield counter("failures", "Callbacks of the agent that raised.", self.loop.failed)
        yield Family("outrider_agent_lag_seconds", "gauge", "How late the agent's loop is.", [(node, self._lag())])
        yield Family("outrider_agent_spool_bytes", "gauge", "Signals on disk.", [(node, self.spool.disk_bytes())])
        yield Family("outrider_agent_slots", "gauge", "Slots with memory.", [(node, float(len(self.ranks.table)))])
        yield from _link_families(self.node, self.links, self.spool.waiting())


def _link_families(node: str, links: list[WitnessLink], waiting: dict[str, int]) -> Iterable[Family]:
    parts: list[tuple[str, Any, str, Callable[[WitnessLink], float]]] = [
        ("witness_up", "gauge", "1 if the latest exchange with the witness went well.", lambda link: float(link.up)),
        ("witness_errors", "counter", "Exchanges that failed.", lambda link: link.errors),
        ("signals_sent", "counter", "Signals that the witness acknowledged.", lambda link: link.sent),
        ("signals_sent_bytes", "counter", "Bytes of those signals.", lambda link: link.sent_bytes),
        ("signals_refused", "counter", "Signals that the witness will never take.", lambda link: link.refused),
        ("signals_waiting", "gauge", "Signals not yet acknowledged.", lambda link: waiting.get(link.member.name, 0)),
    ]
    for name, kind, text, value in parts:
        samples = [({"node": node, "witness": link.member.name}, float(value(link))) for link in links]
        yield Family(f"outrider_agent_{name}", kind, text, samples)


def _address(fleet: FleetSection, node: str) -> str:
    for entry in fleet.nodes:
        if entry.node == node:
            return entry.address or LOOPBACK
    known = ", ".join(entry.node for entry in fleet.nodes[:8]) or "none"
    raise InputError(f"no node {node!r} (known: {known})", key="fleet.nodes")


def _metrics_server(page: MetricsPage, section: AgentSection, own_address: str, security: SecuritySection) -> MetricsServer | None:
    if section.metrics_port == 0:
        return None
    address = own_address if section.metrics_address == "node" else section.metrics_address
    tokens = security.viewer_tokens() if security.viewer_token_file else ()
    return MetricsServer(page, address, section.metrics_port, tokens)
