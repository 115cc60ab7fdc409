"""A site of witnesses' HTTP interfaces for the console's tests: the real routes, ledger and memory; only the judge is left out.

It runs in a thread with a loop of its own, so that a browser can be driven from the test. All witnesses share one ledger.
"""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Coroutine
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

from aiohttp import web

from dashboards.console.pages import add_console
from dashboards.console.shell import Shell
from detectors.witness import routes_people
from detectors.witness.access import Access, Role
from detectors.witness.http import Pages, serve
from detectors.witness.ledger import Commit, Control, IncidentWrite
from detectors.witness.ledger_sqlite import SqliteLedger
from detectors.witness.metrics import Histograms, Metrics
from detectors.witness.sight import Sight
from detectors.witness.translate import iso
from outrider.clock import SystemClock
from outrider.config.console import ConsoleSection
from outrider.config.ledger import LedgerSection
from outrider.config.policy import Policy
from outrider.config.site import Config
from outrider.config.witness import Member, WitnessSection
from outrider.fleet import Fleet, Job, Node
from outrider.signals import Signal

VIEWER, OPERATOR, AGENT = "5e" * 16, "0f" * 16, "a9" * 16
#: The longest lease there is; each write renews it.
LEASE_SECONDS = 60.0
T = TypeVar("T")


def fleet_of(count: int, per_rack: int = 16, per_switch: int = 32) -> Fleet:
    """A fleet of any size, racks and leaf switches filled in order; the last node is a spare."""
    nodes = tuple(
        Node(
            node=f"n{number:05d}", rack=f"r{number // per_rack:03d}", gpus=8, address="127.0.0.1",
            nics={f"mlx5_{rail}": f"leaf{number // per_switch:03d}" for rail in range(2)},
        )
        for number in range(count)
    )  # fmt: skip
    slots = tuple((node.node, gpu) for node in nodes[: max(1, min(16, count - 1))] for gpu in range(8))
    return Fleet(nodes=nodes, jobs=(Job(job="llama", slots=slots),), spares=(nodes[-1].node,))


def picture(number: int, **changed: Any) -> dict[str, Any]:
    """An incident's picture as the leader writes it."""
    name = f"{number:012x}"
    wall = iso(time.time() - number % 50)
    return {
        "incident": name, "fault": "gpu.fallen_off_bus", "culprit": "gpu", "state": "confirmed", "response": "restart",
        "subject": {"node": f"n{number:05d}", "gpu": number % 8}, "repair": "reboot_node", "layers": ["hardware", "application"],
        "votes": {"w1": "faulty", "w2": "faulty", "w3": "abstain"}, "opened": wall, "wall": wall, "t": 100.0,
        "explanation": f"GPU {number % 8} of n{number:05d} fell off the bus (XID 79); rank 3 of llama ended 0.4 s later.",
        "evidence": [
            {"t": 99.0, "kind": "xid", "subject": {"gpu": 1}, "effect": "confirm", "layer": "hardware",
             "text": "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."},
            {"t": 99.4, "kind": "process_exit", "subject": {"rank": 3}, "effect": "confirm", "layer": "application",
             "text": "rank 3 of llama ended with signal 6"},
            {"t": 99.5, "kind": "step", "subject": {}, "effect": "veto", "layer": "application",
             "text": "the job finished step 1204 after the first sign"},
        ],
        "times": {"suspected": 99.0, "confirmed": 100.0}, "extra": {},
        "detection": {"heartbeat": 0.0, "timeout": 0.4, "quorum": 0.6, "total": 1.0}, **changed,
    }  # fmt: skip


def lines_of(told: dict[str, Any], refused: str | None = None) -> list[dict[str, Any]]:
    """A history that fits a picture: suspected, confirmed, and one action (or its refusal)."""
    base = {"wall": told["wall"], "incident": told["incident"]}
    return [
        {**base, "event": "suspected", "t": 99.0, "explanation": "one witness doubts"},
        {**base, "event": "confirmed", "t": 100.0, "explanation": told["explanation"]},
        {**base, "event": "refused" if refused else "action", "t": 100.1, "action": "restart", "refused": refused, "fence": 7,
         "target": {"job": "llama"}, "dry_run": False, "reason": "the job cannot go on"},
    ]  # fmt: skip


class _Other(Shell):
    """The page as another version would serve it; its own files still say the build they were made for."""

    def __init__(self, build: str) -> None:
        super().__init__()
        self._real, self.build = self.build, build

    def file(self, request: web.Request) -> web.Response:
        self.build, said = self._real, self.build
        try:
            return super().file(request)
        finally:
            self.build = said


class Stage:
    """`witnesses` servers on free ports of loopback over one ledger. A context manager; all methods are for the test's thread."""

    def __init__(self, folder: Path, fleet: Fleet, witnesses: int = 1) -> None:
        self.folder, self.fleet = folder, fleet
        held = [socket.create_server(("127.0.0.1", 0)) for _ in range(witnesses)]
        members = tuple(
            Member(name=f"w{place + 1}", http_port=one.getsockname()[1], heartbeat_port=9) for place, one in enumerate(held)
        )
        for one in held:
            one.close()
        self.section = WitnessSection(members=members, shared_vantage_ok=True)
        self.urls = [member.url for member in members]
        self.sights = [Sight(fleet, SystemClock()) for _ in members]
        self.mode = "advise"
        self._runners: list[web.AppRunner] = []
        self.pages: list[Pages] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> "Stage":
        self._thread.start()
        self.do(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        self.do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs `work` on the stage's loop."""
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return future.result(30)

    async def _open(self) -> None:
        self.ledger = SqliteLedger(LedgerSection(path=str(self.folder / "ledger.db"), lease_seconds=LEASE_SECONDS))
        await self.ledger.open()
        for place in range(len(self.urls)):
            await self._serve(place)

    async def _serve(self, place: int) -> None:
        member = self.section.members[place]
        console = ConsoleSection(reports_dir=str(self.folder / "reports"), streams_max=3)
        config = Config({"witness": self.section, "console": console}, None)
        access = Access({Role.VIEWER: (VIEWER,), Role.OPERATOR: (OPERATOR,), Role.AGENT: (AGENT,)})

        async def status() -> dict[str, Any]:
            controls: list[Control] = await self.ledger.controls()
            return {
                "site": "site-a", "mode": self.mode, "witness": member.name, "version": "0.1.0", "leader": "w1", "term": 1,
                "deliverer": True, "witnesses": {f"w{number}": {"up": True} for number in (1, 2, 3)}, "warnings": [],
                "nodes": len(self.fleet.nodes), "spares": list(self.fleet.spares), "jobs": {}, "incidents": {},
                "paused": any(control.kind == "pause" for control in controls),
                "maintenance": [control.key for control in controls if control.kind == "maintenance"],
                "heartbeats": 12345, "refused": {}, "signals": {"step": 10, "xid": 1}, "lag_seconds": 0.001, "stalls": 0,
            }  # fmt: skip

        pages = Pages(access, config, self.ledger, status, self.sights[place])
        routes_people.add_routes(pages, Metrics(list, Histograms()), self.fleet, Policy(mode=self.mode))
        add_console(pages)
        self.pages.append(pages)
        self._runners.append(await serve(pages.application(1 << 20), member.address, member.http_port))

    async def _close(self) -> None:
        for runner in self._runners:
            await runner.cleanup()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await self.ledger.close()

    def stop_witness(self, place: int) -> None:
        """One witness dies: its port is closed and its streams break."""
        self.do(self._runners[place].cleanup())

    def restart_with_build(self, place: int, build: str) -> None:
        """One witness is upgraded: it comes back with a page of another build."""
        self.stop_witness(place)
        with patch("dashboards.console.pages.Shell", lambda: _Other(build)):
            self.do(self._serve(place))

    def put(self, *pictures: dict[str, Any], refused: str | None = None) -> None:
        """Writes incidents, or newer pictures of them, as a leader does."""
        writes = [
            IncidentWrite(incident=one["incident"], state=one["state"], picture=one, line=line)
            for one in pictures
            for line in lines_of(one, refused)
        ]
        self.do(self._commit(tuple(writes)))

    def quarantine(self, *nodes: str) -> None:
        """The council holds nodes out of use."""
        memory = {"recovery": {"quarantined": dict.fromkeys(nodes, 1.0)}}
        self.do(self._commit((), json.dumps(memory).encode()))

    async def _commit(self, writes: tuple[IncidentWrite, ...], council: bytes | None = None) -> None:
        lease = await self.ledger.acquire("leader", "w1-1")
        assert lease is not None
        await self.ledger.commit(Commit(term=lease.term, fence_before=0, fence=0, incidents=writes, council=council), "w1-1")
        for pages in self.pages:
            pages.news.set()

    def audit(self, *entries: dict[str, Any]) -> None:
        """Writes lines of the audit."""
        self.do(self.ledger.put_audit([{"wall": iso(time.time()), **entry} for entry in entries]))

    def controls(self) -> list[Control]:
        return self.do(self.ledger.controls())

    def beat_all(self) -> None:
        """Every node is heard at every witness."""
        for sight in self.sights:
            for node in self.fleet.nodes:
                sight.beat(Signal(t=1.0, kind="heartbeat", node=node.node))

    def tell(self, *signals: Signal) -> None:
        """Every witness takes signals in."""
        for signal in signals:
            for sight in self.sights:
                sight.signal(signal)
