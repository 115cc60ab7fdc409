"""A real cluster under a real Prometheus: emulated nodes, real agents and witnesses, a training job, a fault and its recovery.

Five nodes of the drill, each with GPUs, ports, kernel log and dcgm-exporter of `collectors.emulated`, read by real agents; three
witnesses; the deliverer; a job of four ranks with the SDK. A GPU of one node falls off the bus, the spare takes its slot, and the
node that was taken out shows what else can be wrong with a node. Prometheus scrapes all of it once a second meanwhile.
"""

import asyncio
import contextlib
import shutil
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grafana_panels import filled
from grafana_site import Site as Prometheus
from grafana_site import configure, free_port, prometheus, targets_of, with_numbers

from collectors.emulated.node import EmulatedNode
from drills.cluster.network import Loopback
from drills.drill.faults import wait_for_step
from drills.drill.processes import Nursery
from drills.drill.site import JOB, NODES, WITNESSES, Site
from drills.drill.stage import Stage

GPUS, PORTS = 2, 2
#: The node whose GPU falls off the bus, and that GPU.
SICK, GPU = NODES[1], 1
FAULT = "gpu.fallen_off_bus"
#: A node that goes on with one bad cable.
WEAK = NODES[2]
#: When the fault comes, and the step at which the recovered job has shown enough of its course.
FAULT_STEP, SEEN_STEP = 30, 110
#: An agent's reading is at most a second old; Prometheus and its rules need a few rounds after the last change.
ROUNDS_SECONDS = 6.0


@dataclass
class LiveSite(Site):
    """A drill's site whose agents collect, with a page for Prometheus each."""

    agents_port: int = field(default_factory=free_port)
    deliverer_port: int = field(default_factory=free_port)
    emulated: dict[str, EmulatedNode] = field(default_factory=dict)

    def prepare(self) -> None:
        super().prepare()
        for number, node in enumerate(NODES):
            folder = self.folder / "nodes" / node
            self.scratch(node).mkdir(parents=True)
            self.emulated[node] = EmulatedNode(folder, gpus=GPUS, ports=PORTS, exporter=True, number=number)
            self._age_modules(node)
            self.config_path(node, new=True).write_text(f"{self._toml({})}\n[collectors]\n{self._collectors(node)}")

    def _age_modules(self, node: str) -> None:
        """Modules are read once a minute: they, and a card that is too hot, are ill from the start."""
        emulated = self.emulated[node]
        if node == SICK:
            emulated.cards["mlx5_1"].set(temperature=81.0, lanes=(3e-5, 9e-4, 9e-3))
            emulated.cards["mlx5_1"].complain(hot=True, dark=True)
            sensors = emulated.sysfs / "class/infiniband/mlx5_1/device/hwmon/hwmon0"
            sensors.mkdir(parents=True)
            for name, text in (("input", "106000"), ("crit", "105000"), ("label", "asic")):
                (sensors / f"temp1_{name}").write_text(text)
        if node == WEAK:  # a port without a module
            (emulated.sysfs / "class/net/ens1/ethtool/module-50-00").unlink()

    def config_path(self, node: str | None = None, *, new: bool = False) -> Path:
        return self.folder / f"site-{node}.toml" if new else super().config_path(node)

    def scratch(self, node: str) -> Path:
        """The mount of a node that its storage collector probes."""
        return self.folder / "scratch" / node

    def _collectors(self, node: str) -> str:
        return (
            f"interval_seconds = 1.0\nstorage_interval_seconds = 1.0\n{self.emulated[node].toml()}"
            f'rank_logs = [{{ glob = "{self.folder}/logs/rank-*.log", job = "{JOB}" }}]\n'
            f'[[collectors.mounts]]\npath = "{self.scratch(node)}"\nserver = "nas1"\n'
        )

    def _toml(self, relay_ports: dict[str, int]) -> str:
        text = super()._toml(relay_ports)
        for index, node in enumerate(NODES):
            old = f'node = "{node}"\nrack = "r{index}"\ngpus = 0\n'
            nics = ", ".join(f'mlx5_{port} = "leaf{index // 3}"' for port in range(PORTS))
            text = _swapped(text, old, f'node = "{node}"\nrack = "r{index // 2}"\ngpus = {GPUS}\nnics = {{ {nics} }}\n')
        page = f'metrics_address = "node"\nmetrics_port = {self.agents_port}\nmetrics_seconds = 1.0'
        text = _swapped(text, "metrics_port = 0\ncollect = false", page)
        return _swapped(text, "[[alerts.targets]]", f"[alerts]\nmetrics_port = {self.deliverer_port}\n\n[[alerts.targets]]")


def _swapped(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1, old
    return text.replace(old, new)


class LiveNursery(Nursery):
    """Gives each node's agent the environment of its emulated GPUs."""

    site: LiveSite

    async def spawn(self, spec: dict[str, Any]) -> int:
        words = [f"{name}={value}" for name, value in self.site.emulated[spec["node"]].environment().items()]
        return await super().spawn({**spec, "agent": ["env", *words, *spec["agent"]]})


@dataclass(frozen=True)
class Live:
    """What stands at the end of the run: Prometheus, how long ago the run began, and the witnesses' incidents."""

    prometheus: Prometheus
    began: float
    incidents: tuple[dict[str, Any], ...]

    def at(self, expr: str) -> str:
        """An expression as somebody sees it who looks at the sick node over the whole run."""
        seconds = int(time.time() - self.began)
        for name, value in {"$node": SICK, "$job": JOB, "$__range_s": str(seconds), "$__range": f"{seconds}s"}.items():
            expr = expr.replace(name, value)
        return filled(expr)

    def over_the_run(self, expr: str) -> list[Any]:
        """The series that the expression has had at any second of the run."""
        return with_numbers(self.prometheus.ask_range(expr, int(time.time() - self.began)))


class LiveStage(Stage):
    """Also says a person's word to a witness."""

    async def order(self, path: str, body: dict[str, Any]) -> None:
        assert self._http is not None
        url = f"http://{self.site.network.hub_address()}:{self.site.ports[f'http-{WITNESSES[0]}']}{path}"
        async with self._http.post(url, json=body) as answer:
            assert answer.status == 200, await answer.text()


@contextlib.asynccontextmanager
async def live(folder: Path, shipped: Path) -> AsyncIterator[Live]:
    """Plays the run; the processes go on until the caller is done with asking."""
    site = LiveSite(folder / "site", Loopback())
    site.prepare()
    began = time.time()
    nursery = await LiveNursery.open(folder / "nursery.log")
    nursery.site = site
    try:
        async with LiveStage(site, nursery, seed=1) as stage:
            (folder / "prometheus").mkdir()
            configure(folder / "prometheus", shipped, targets_of(site.config_path()), site.secret("viewer").read_text())
            with prometheus(folder / "prometheus") as asked:
                yield Live(asked, began, await _play(stage, site))
    finally:
        await nursery.close()
        for node in site.emulated.values():
            node.close()


async def _play(stage: LiveStage, site: LiveSite) -> tuple[dict[str, Any], ...]:
    """The job begins, the GPU falls off the bus, the spare takes over; the sick node gets worse; the job goes on."""
    stage.submit()
    await wait_for_step(stage, FAULT_STEP)
    sick = site.emulated[SICK]
    sick.xid(GPU, 79)
    sick.gpus.set_count(GPUS - 1)
    await stage._until(lambda: stage.scheduler.jobs[JOB].attempt == 2, "the job was not started again")
    worse = asyncio.create_task(_get_worse(site))
    try:
        await wait_for_step(stage, SEEN_STEP)
        await stage.order("/v1/pause", {"on": True, "who": "ada", "reason": "a look at the brakes"})
        site.emulated[NODES[0]].xid(GPU, 79)  # of a GPU that no rank uses: the drain is held back
        await asyncio.sleep(ROUNDS_SECONDS)
        return tuple(await stage.incidents())
    finally:
        worse.cancel()


async def _get_worse(site: LiveSite) -> None:
    """What else can be read of a node that is not well, growing each second."""
    shutil.rmtree(site.scratch(SICK))
    sick, weak = site.emulated[SICK], site.emulated[WEAK]
    for second in range(1, 600):
        sick.gpus.set(
            0, temp_c=91, throttle=0x40, pcie__width=8, pcie__replay=second, nvlinks_down=1, remap__pending=1, remap__failed=1,
            ecc__volatile__corrected__dram=second, ecc__volatile__uncorrected__dram=second, field38=second,
        )  # fmt: skip
        sick.flaps("mlx5_1", second)
        sick.memory_errors(corrected=second, uncorrected=0)
        for card in (sick.cards["mlx5_0"], weak.cards["mlx5_0"]):
            card.fec(corrected=40_000 * second, uncorrectable=25 * second)
        weak.count("mlx5_0", symbol_error=50 * second, local_ack_timeout_err=second, port_xmit_wait=10 * second)
        sick.link("mlx5_1", up=False)
        if second % 5 == 0:
            sick.kernel(f"INFO: task python:{second} blocked for more than 120 seconds.")
        await asyncio.sleep(1.0)
