"""What a GPU's own gauges and counters say: memory errors, row remaps, links, heat, cards that are missing, calls that hang.

Counters are judged by their growth since the first reading; a code or a count that stood before the agent came is not new.
"""

from dataclasses import dataclass, field
from math import isnan
from typing import Any

from detectors.core.docket import Docket
from detectors.core.parts import Gpu, Parts
from detectors.core.types import Evidence
from detectors.core.world import World
from outrider.signals import Signal

#: Readings in a row that make heat or a missing card a fact.
READINGS = 3
#: Share of the power limit below which a card computes nothing: it waits in a collective, however busy it looks.
IDLE_POWER = 0.30
#: State suspicions end by themselves this long after their last reading.
LASTS_SECONDS = 300.0
#: A link that went down at most this long before the job's last progress can be why the job stands: counters are read now and then.
NEAR_SECONDS = 60.0
#: Growth of NVLink error counters between two readings that is worth showing.
NVLINK_ERRORS = 100
_HEAT = ("thermal", "hw_slowdown", "hw_thermal", "sw_thermal", "power_brake")


@dataclass(slots=True)
class _Card:
    counters: dict[str, float] = field(default_factory=dict)
    hot: int = 0
    missing: int = 0
    power: float | None = None
    util: float | None = None
    seen_t: float = float("-inf")


class GpuHealthRule:
    """Judges gauges and counters of cards for one witness."""

    def __init__(self, world: World, parts: Parts, docket: Docket) -> None:
        self.world, self.parts, self.docket = world, parts, docket
        self._cards: dict[int, _Card] = {}
        self._gpus: dict[int, Gpu] = {}
        self._missing: dict[str, int] = {}
        #: card -> when a link of it went down, and what was told of it.
        self._links_down: dict[int, tuple[float, str]] = {}

    def _card(self, signal: Signal) -> tuple[Gpu, _Card] | None:
        gpu = self.parts.find(signal)
        if gpu is None:
            self.world.count("reading of an unknown card")
            return None
        self._gpus[id(gpu)] = gpu
        return gpu, self._cards.setdefault(id(gpu), _Card())

    def _grown(self, card: _Card, name: str, value: Any) -> float:
        """By how much a counter grew since its last reading; 0 for the first one and after a reset."""
        if not isinstance(value, int | float) or isnan(value):
            return 0.0
        before = card.counters.get(name)
        card.counters[name] = float(value)
        return max(0.0, value - before) if before is not None else 0.0

    # --- memory ---

    def ecc(self, signal: Signal, now: float) -> None:
        """ECC counters: uncorrected ones that grow are a fault, corrected ones are what ECC is for."""
        found = self._card(signal)
        if found is None:
            return
        gpu, card = found
        scope = f"{signal.data.get('scope', 'volatile')} {signal.data.get('where', '')}"
        self._grown(card, f"corrected {scope}", signal.data.get("corrected"))
        if new := self._grown(card, f"uncorrected {scope}", signal.data.get("uncorrected")):
            self._accuse("gpu.ecc_contained", gpu, signal, now, f"{new:.0f} new uncorrected memory errors ({scope.strip()})", "ecc")

    def row_remap(self, signal: Signal, now: float) -> None:
        """Rows that could not be remapped, or wait for a reset to be."""
        found = self._card(signal)
        if found is None:
            return
        gpu, _ = found
        if signal.data.get("failed"):
            self._accuse("gpu.row_remap_failed", gpu, signal, now, "a row could not be remapped", "remap_failed", decisive=True)
        elif signal.data.get("pending"):
            self._accuse(
                "gpu.row_remap_pending", gpu, signal, now, "a row waits for a reset to be remapped", "pending", decisive=True
            )

    # --- links of the card ---

    def nvlink(self, signal: Signal, now: float) -> None:
        """NVLink counters: a link that went down is a suspect, errors are shown."""
        found = self._card(signal)
        if found is None:
            return
        gpu, card = found
        link = signal.link if signal.link is not None else signal.data.get("link", 0)
        down = self._grown(card, f"down {link}", signal.data.get("down"))
        errors = sum(self._grown(card, f"{name} {link}", signal.data.get(name)) for name in ("replay", "recovery", "crc"))
        if down:
            self._links_down[id(gpu)] = (now, f"NVLink {link} went down")
            self._accuse("gpu.nvlink", gpu, signal, now, f"NVLink {link} went down", "link_down")
        elif errors >= NVLINK_ERRORS:
            self._accuse("gpu.nvlink", gpu, signal, now, f"NVLink {link}: {errors:.0f} new errors", "link_errors", response="watch")

    def stands(self, job: str, now: float, text: str) -> None:
        """A job stands still: a link of one of its cards that went down shortly before is the reason."""
        state = self.world.jobs.get(job)
        for identity, (when, told) in list(self._links_down.items()):
            gpu = self._gpus[identity]
            if now - when > LASTS_SECONDS:
                del self._links_down[identity]
            elif state is not None and gpu.node in state.node_ranks and when >= state.moved_t - NEAR_SECONDS:
                piece = Evidence(t=now, kind="step", subject={"job": job}, effect="confirm", text=text, layer="application")
                self._blame("gpu.nvlink", gpu, now, piece, told, "link_down_and_job", "restart")

    def pcie(self, signal: Signal, now: float) -> None:
        """A PCIe link with fewer lanes than it has; a lower generation alone is how an idle card saves power."""
        found = self._card(signal)
        width, most = signal.data.get("width"), signal.data.get("width_max")
        if found is not None and isinstance(width, int) and isinstance(most, int) and 0 < width < most:
            self._accuse("gpu.slow", found[0], signal, now, f"PCIe width x{width} of x{most}", "pcie_width", response="page")

    # --- state ---

    def state(self, signal: Signal, now: float) -> None:
        """Clocks, heat, power and load of a card."""
        found = self._card(signal)
        if found is None:
            return
        gpu, card = found
        data = signal.data
        card.seen_t = now
        if isinstance(data.get("power_w"), int | float) and data.get("power_limit_w"):
            card.power = data["power_w"] / data["power_limit_w"]
        card.util = data.get("util", card.util if signal.source == "nvml" else None)
        reasons = [str(one).lower() for one in data.get("throttle") or ()]
        clock, most = data.get("sm_mhz"), data.get("sm_mhz_max")
        slowed = clock is None or most is None or clock < 0.9 * most
        hot = slowed and any(word in reason for reason in reasons for word in _HEAT)
        card.hot = card.hot + 1 if hot else 0
        key = gpu.key()
        if card.hot >= READINGS:
            text = f"throttled ({', '.join(reasons)})" + (f" at {data['temp_c']} C" if "temp_c" in data else "")
            self._accuse("gpu.thermal", gpu, signal, now, text, "throttled", response="page")
        elif not hot:
            self.docket.clear_subject("gpu.thermal", key, now, "it runs at full clock again")

    def count(self, signal: Signal, now: float) -> None:
        """How many cards a node shows."""
        node, expected = signal.node, signal.data.get("expected")
        if expected is None and node in self.world.node:
            expected = self.world.node[node].gpus or None
        if node not in self.world.row or not isinstance(signal.value, int | float) or not isinstance(expected, int | float):
            return
        if signal.value >= expected:
            self._missing.pop(str(node), None)
            self.docket.clear_subject("gpu.missing", {"node": node}, now, "all cards are there")
            return
        self._missing[str(node)] = seen = self._missing.get(str(node), 0) + 1
        text = f"{signal.value:.0f} of {expected:.0f} GPUs are there"
        piece = Evidence(t=now, kind="gpu_count", subject={"node": node}, effect="confirm", text=text)
        self.docket.accuse(
            "gpu.missing", {"node": node}, now=now, evidence=(piece,), reason=text, reason_code="missing", decisive=True,
            sure=seen >= 2 or not self.world.jobs_on(str(node)), lasts=LASTS_SECONDS,
        )  # fmt: skip

    def slow(self, node: str, index: int, text: str, now: float) -> None:
        """The rank on a card is the slow one again and again: if the card is throttled, that is the reason."""
        gpu = self.parts.at(node, index)
        known = self.docket.find("gpu.thermal", gpu.key()) if gpu is not None else None
        if gpu is not None and known is not None and known.verdict == "faulty":
            piece = Evidence(t=now, kind="step", subject=self._seat(gpu), effect="confirm", text=text, layer="application")
            self.docket.accuse(
                "gpu.thermal", self._seat(gpu), key_subject=gpu.key(), now=now, evidence=(piece,), reason=known.reason,
                reason_code="throttled_and_slow", response="drain", lasts=LASTS_SECONDS * 3,
            )  # fmt: skip

    def odd_of(self, nodes: dict[str, Any], now: float) -> tuple[dict[str, Any], str] | None:
        """The one card among these nodes that idles while all others spin, with its rank; None if there is no such one."""
        idle, spinning, other = self._spread(nodes, now)
        if len(idle) != 1 or not _stands_out(spinning, other):
            return None
        return self._seat(idle[0]), f"idle, while {spinning} peers spin at full load and under {IDLE_POWER:.0%} of their power"

    def odd_one(self, gpu: Gpu, now: float) -> str | None:
        """Whether a card idles while its peers spin at full load and little power: they wait for it in a collective."""
        jobs = self.world.jobs_on(gpu.node)
        if not jobs:
            return None
        idle, spinning, other = self._spread(jobs[0].node_ranks, now)
        if any(one is gpu for one in idle) and _stands_out(spinning, other):
            return f"idle, while {spinning} peers spin at full load and under {IDLE_POWER:.0%} of their power"
        return None

    def _spread(self, nodes: dict[str, Any], now: float) -> tuple[list[Gpu], int, int]:
        """Cards that idle; how many spin in a collective; how many do something else. Old readings count for nothing."""
        idle, spinning, other = [], 0, 0
        for identity, card in self._cards.items():
            gpu = self._gpus[identity]
            if gpu.node not in nodes or card.power is None or now - card.seen_t > LASTS_SECONDS:
                continue
            if card.util is None or card.util < 20:
                idle.append(gpu)
            elif card.util >= 90 and card.power < IDLE_POWER:
                spinning += 1
            else:
                other += 1
        return idle, spinning, other

    # --- helpers ---

    def _seat(self, gpu: Gpu) -> dict[str, Any]:
        """The card with the rank that sits on it."""
        return gpu.subject() | self.world.seat(gpu.node, gpu.index)

    def _accuse(
        self, fault: str, gpu: Gpu, signal: Signal, now: float, text: str, code: str, *, decisive: bool = False,
        response: str | None = None,
    ) -> None:  # fmt: skip
        piece = Evidence(t=now, kind=signal.kind, subject=gpu.subject(), effect="confirm", text=text)
        self._blame(fault, gpu, now, piece, text, code, response or ("page" if not decisive else None), decisive=decisive)

    def _blame(
        self, fault: str, gpu: Gpu, now: float, piece: Evidence, text: str, code: str, response: str | None, *,
        decisive: bool = False,
    ) -> None:  # fmt: skip
        self.docket.accuse(
            fault, self._seat(gpu), key_subject=gpu.key(), now=now, evidence=(piece,), reason=text, reason_code=code,
            decisive=decisive, response=response, lasts=LASTS_SECONDS * 3,
        )  # fmt: skip


def _stands_out(spinning: int, other: int) -> bool:
    """Whether enough cards spin to say that they wait for the one that does not."""
    return spinning >= 3 and spinning >= 0.8 * (spinning + other)
