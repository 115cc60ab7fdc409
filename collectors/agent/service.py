"""The agent's edge: puts the parts together and runs them until SIGTERM."""

import socket
from collections.abc import Callable, Iterable
from importlib.metadata import version

from collectors.agent.beat import BeatPort, Heart, family_of, heartbeat_places
from collectors.agent.job_numbers import JobNumbers
from collectors.agent.local import LocalServer
from collectors.agent.log import Log
from collectors.agent.loop import Loop
from collectors.agent.metrics import Family, MetricsPage, MetricsServer, family
from collectors.agent.orders import OrderGate
from collectors.agent.probe import Prober
from collectors.agent.ranks import Ranks
from collectors.agent.slots import SlotTable
from collectors.agent.spool import Spool
from collectors.agent.state import Folders, boot_id, next_start, spare_from_oom
from collectors.agent.transport import WitnessLink
from collectors.frame.found import Found, make_place
from collectors.frame.supervisor import Supervisor
from collectors.frame.types import News
from outrider.config.agent import AgentSection
from outrider.config.fleet import FleetSection
from outrider.config.security import SecuritySection
from outrider.config.site import Config
from outrider.config.witness import WitnessSection
from outrider.errors import InputError
from outrider.metrics import METRICS
from outrider.signals import Signal
from outrider.tls import RenewedContext, readings, server_context
from outrider.wire import Order

#: Where the agent listens when `[fleet]` does not name an address for the node.
LOOPBACK = "127.0.0.1"
BUILD = {"version": version("outrider"), "component": "agent"}


class Agent:
    """One node's agent.

    Args:
        config: the whole file.
        node: which node of `[fleet]` this is.
        found: the collectors to run.
        nursery: where their children come from.

    Raises:
        InputError: a setting, a port, a folder or a secret cannot be used.
    """

    def __init__(self, config: Config, node: str, found: Found, nursery: socket.socket) -> None:
        self.section = config.get(AgentSection)
        members = config.get(WitnessSection).members
        if not members:
            raise InputError("names no witness", key="witness.members")
        security = config.get(SecuritySection)
        keys, token = security.heartbeat_keys(), security.agent_tokens()[0]
        self.node, self.address = node, _address(config.get(FleetSection), node)
        self.log = Log(node=node)
        self.loop = Loop(self._failed)
        self.page = MetricsPage(self.section.metrics_seconds)
        self._tls = _tls_of(self.section, self.log)
        self._metrics = _metrics_server(self.page, self.section, self.address, security, self._tls)
        self._port = BeatPort(self.address, self.section.udp_port)
        self._heart_places = heartbeat_places(members, family_of(self.address))
        self.folders = Folders(self.section, node)
        self.boot, self.start = boot_id(), next_start(self.folders.state)
        self._build(config, keys, token)
        self._build_collectors(config, found, nursery)

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
                wait_seconds=section.order_wait_seconds, on_orders=self._orders_came, log=self.log,
            )
            for member in members
        ]  # fmt: skip
        self.heart = Heart(self._port, self._heart_places, keys, (self.node, self.boot, self.start), self._lag, clock.monotonic)
        self.gate = OrderGate(self.folders.run / "orders.json")
        self.prober = Prober(self.loop, self.address, section.probe_seconds)
        self.jobs = JobNumbers(self.node, clock.monotonic)
        self.ranks = Ranks(
            loop=self.loop, node=self.node, boot=self.boot, table=SlotTable(self.folders.slots, self.boot),
            emit=self._rank_told, step_seconds=section.step_signal_seconds,
            launchers=lambda: self.server.callers("launcher"), on_change=self._ranks_changed,
        )  # fmt: skip
        self.server = LocalServer(self.loop, self.folders.socket, self.node, section.users, self.ranks)
        self.page.sources += [self._families, self.jobs.families]

    def _build_collectors(self, config: Config, found: Found, nursery: socket.socket) -> None:
        self.supervisor = Supervisor(
            self.loop, nursery, found,
            make_place(config, self.node, self.boot, self.folders.state), self.spool.add,
        )  # fmt: skip
        self.page.sources.append(self.supervisor.families)

    def _rank_told(self, signal: Signal) -> None:
        self.jobs.observe(signal)
        self.spool.add(signal)

    def _ranks_changed(self) -> None:
        self.supervisor.tell(News(ranks=self.ranks.local()))

    def run(self) -> None:
        """Runs until SIGTERM or SIGINT, then gives everything back; memory files of slots stay for the next agent."""
        self.loop.stop_on_signals()
        spare_from_oom()
        self.ranks.adopt()
        self.spool.begin()
        for link in self.links:
            link.begin()
        if self._metrics is not None:
            self._metrics.begin(self.loop)
        self.supervisor.begin()
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
        self.supervisor.close()
        self.server.close()
        if self._metrics is not None:
            self._metrics.close(self.loop)
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
            if order.order == "copy":
                self.supervisor.tell(News(ranks=self.ranks.local(), suspected_job=order.job))
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
        self.log.failure("a part of the agent failed", error)

    def _families(self) -> Iterable[Family]:
        yield family("outrider_build_info", [(BUILD, 1.0)])
        own = {
            "heartbeats_total": self.heart.seq,
            "heartbeats_unsent_total": self._port.unsent,
            "probes_answered_total": self._port.answered,
            "datagrams_strange_total": self._port.strange,
            "orders_repeated_total": self.gate.repeated,
            "orders_stale_total": self.gate.stale,
            "commands_total": self.ranks.commands,
            "signals_dropped_total": self.spool.dropped,
            "spool_errors_total": self.spool.disk_errors,
            "spool_bytes": self.spool.disk_bytes(),
            "socket_refusals_total": self.server.strangers,
            "socket_bad_lines_total": self.server.bad_lines,
            "events_dropped_total": self.server.events_dropped,
            "failures_total": self.loop.failed,
            "lag_seconds": self._lag(),
            "slots": len(self.ranks.table),
            "child_restarts_total": self.supervisor.restarts,
        }
        for name, value in own.items():
            yield family(f"outrider_agent_{name}", [({"node": self.node}, float(value))])
        for name, labels, told in readings("agent", self._tls):
            yield family(name, [(dict(zip(METRICS[name].labels, labels, strict=True)), told)])
        yield from _link_families(self.node, self.links, self.spool.waiting())


def _link_families(node: str, links: list[WitnessLink], waiting: dict[str, int]) -> Iterable[Family]:
    parts: dict[str, Callable[[WitnessLink], float]] = {
        "witness_up": lambda link: link.up,
        "witness_errors_total": lambda link: link.errors,
        "signals_sent_total": lambda link: link.sent,
        "signals_sent_bytes_total": lambda link: link.sent_bytes,
        "signals_refused_total": lambda link: link.refused,
        "signals_waiting": lambda link: waiting.get(link.member.name, 0),
    }
    for name, value in parts.items():
        samples = [({"node": node, "witness": link.member.name}, float(value(link))) for link in links]
        yield family(f"outrider_agent_{name}", samples)


def _address(fleet: FleetSection, node: str) -> str:
    for entry in fleet.nodes:
        if entry.node == node:
            return entry.address or LOOPBACK
    known = ", ".join(entry.node for entry in fleet.nodes[:8]) or "none"
    raise InputError(f"no node {node!r} (known: {known})", key="fleet.nodes")


def _tls_of(section: AgentSection, log: Log) -> RenewedContext | None:
    if section.metrics_port == 0 or not section.metrics_tls_cert:
        return None
    return server_context(section.metrics_tls_cert, section.metrics_tls_key, log)


def _metrics_server(
    page: MetricsPage, section: AgentSection, own_address: str, security: SecuritySection, tls: RenewedContext | None
) -> MetricsServer | None:
    if section.metrics_port == 0:
        return None
    address = own_address if section.metrics_address == "node" else section.metrics_address
    tokens = security.viewer_tokens() if security.viewer_token_file else ()
    return MetricsServer(page, address, section.metrics_port, tokens, tls)
