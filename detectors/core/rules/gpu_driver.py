"""Driver calls that do not return, tasks that hang in the driver, and ranks that end on a card that is suspect already."""

from collections.abc import Callable
from typing import Any

from detectors.core.docket import Docket
from detectors.core.parts import Gpu, Parts
from detectors.core.types import Evidence
from detectors.core.world import World
from outrider.signals import Signal

#: A driver call that takes longer is stuck; the slowest healthy ones (a first NVML init with 8 cards) take some seconds.
CALL_SECONDS = 10.0
#: A call that is stuck for less long is only shown while nothing else is wrong: a driver under load answers late.
CALL_SURE_SECONDS = 30.0
#: Faults of a card that end the rank on it, and how fresh the suspicion must be when the rank ends.
ENDS_RANKS, FRESH_SECONDS = ("gpu.ecc_contained", "gpu.nvlink", "gpu.missing"), 120.0
#: Suspicions end by themselves this long after their last word; those of a driver that hangs stand three times as long.
LASTS_SECONDS = 300.0


class GpuDriverRule:
    """Judges the driver for one witness.

    Args:
        world, parts, docket: as everywhere.
        odd_one: says of a card that it idles while its peers spin in a collective, or None.
    """

    def __init__(self, world: World, parts: Parts, docket: Docket, odd_one: Callable[[Gpu, float], str | None]) -> None:
        self.world, self.parts, self.docket, self._odd_one = world, parts, docket, odd_one
        #: Cards with a driver call that does not return: (gpu, since when, call).
        self.stuck: dict[int, tuple[Gpu, float, str]] = {}
        #: node -> kernel's word that a task hangs in the GPU driver.
        self.hung_tasks: dict[str, tuple[float, str]] = {}

    def driver_call(self, signal: Signal, now: float) -> None:
        """A call into the driver that does not return."""
        gpu = self.parts.find(signal)
        if gpu is None or not isinstance(signal.value, int | float):
            self.world.count("reading of an unknown card")
            return
        if signal.value < CALL_SECONDS:
            if self.stuck.pop(id(gpu), None) is not None:
                self.docket.clear_subject("gpu.driver_hang", gpu.key(), now, "the driver answers again")
            return
        call = str(signal.data.get("call", "a driver call"))
        self.stuck[id(gpu)] = (gpu, now - float(signal.value), call)
        self.judge_stuck(now)

    def hung_task(self, node: str, text: str, now: float) -> None:
        """The kernel says that a task hangs; if it hangs in the GPU driver, that is a second voice."""
        if "nvidia" in text.lower() or "nv_" in text or "uvm" in text.lower():
            self.hung_tasks[node] = (now, text)
            if any(gpu.node == node for gpu, _, _ in self.stuck.values()):
                self.judge_stuck(now)
            else:
                self._hung(node, now, ())

    def stands(self, job: str, now: float, text: str) -> None:
        """A job stands still: a stuck card of it is the reason."""
        state = self.world.jobs.get(job)
        if state is None:
            return
        piece = Evidence(t=now, kind="step", subject={"job": job}, effect="confirm", text=text, layer="application")
        for gpu, _, _ in self.stuck.values():
            if gpu.node in state.node_ranks:
                self._stuck(gpu, now, (piece,))
        known = {gpu.node for gpu, _, _ in self.stuck.values()}
        for node, (when, _) in sorted(self.hung_tasks.items()):
            if node in state.node_ranks and node not in known and now - when <= LASTS_SECONDS:
                self._hung(node, now, (piece,))

    def exit(self, job: str, rank: int, node: str, index: int, text: str, now: float) -> bool:
        """A rank ended on a card that is suspect already: True, and the exit confirms that."""
        piece = Evidence(
            t=now, kind="process_exit", subject={"job": job, "rank": rank}, effect="confirm", text=text, layer="application"
        )
        gpu = self.parts.at(node, index)
        if gpu is not None and id(gpu) in self.stuck:
            self._stuck(gpu, now, (piece,))
            return True
        if node in self.hung_tasks and now - self.hung_tasks[node][0] <= LASTS_SECONDS:
            self._hung(node, now, (piece,))
            return True
        keys = [{"node": node}] if gpu is None else [gpu.key(), {"node": node}]
        for fault, key in ((fault, key) for fault in ENDS_RANKS for key in keys):
            known = self.docket.find(fault, key)
            if known is not None and known.verdict == "faulty" and known.response != "watch" and now - known.since <= FRESH_SECONDS:
                self.docket.accuse(
                    fault, known.subject, key_subject=key, now=now, evidence=(piece,), reason=known.reason,
                    reason_code=f"{known.reason_code}_and_exit", decisive=known.decisive, lasts=LASTS_SECONDS * 3,
                )  # fmt: skip
                return True
        return False

    def _hung(self, node: str, now: float, more: tuple[Evidence, ...]) -> None:
        """A task hangs inside the driver, and no collector says on which card."""
        when, text = self.hung_tasks[node]
        piece = Evidence(t=when, kind="kernel", subject={"node": node}, effect="confirm", text=text)
        self.docket.accuse(
            "gpu.driver_hang", {"node": node}, now=now, evidence=(piece, *more), reason=f"a task of {node} hangs in the GPU driver",
            reason_code="hung_task", response="restart" if more else "watch", lasts=LASTS_SECONDS * 3,
        )  # fmt: skip

    def judge_stuck(self, now: float) -> None:
        """Looks at every stuck card again."""
        for gpu, _, _ in list(self.stuck.values()):
            self._stuck(gpu, now, ())

    def _stuck(self, gpu: Gpu, now: float, more: tuple[Evidence, ...]) -> None:
        _, since, call = self.stuck[id(gpu)]
        subject = gpu.subject()
        text = f"{call} has not returned for {now - since:.0f} s"
        pieces = [Evidence(t=now, kind="driver_call", subject=subject, effect="confirm", text=f"{call} does not return")]
        if gpu.node in self.hung_tasks:
            when, words = self.hung_tasks[gpu.node]
            pieces.append(Evidence(t=when, kind="kernel", subject={"node": gpu.node}, effect="confirm", text=words))
        if odd := self._odd_one(gpu, now):
            pieces.append(Evidence(t=now, kind="gpu_state", subject=subject, effect="confirm", text=odd))
        busy = bool(self.world.jobs_on(gpu.node))
        known = self.docket.find("gpu.driver_hang", gpu.key())
        second = bool(more) or (known is not None and len(known.layers()) > 1)
        response = "restart" if second else "watch" if now - since < CALL_SURE_SECONDS else "page" if busy else "drain"
        self.docket.accuse(
            "gpu.driver_hang", self._seat(gpu), key_subject=gpu.key(), now=now, evidence=(*pieces, *more), reason=text,
            reason_code="stuck", response=response, sure=True, decisive=not busy or second, lasts=LASTS_SECONDS * 3,
        )  # fmt: skip

    def _seat(self, gpu: Gpu) -> dict[str, Any]:
        """The card with the rank that sits on it."""
        return gpu.subject() | self.world.seat(gpu.node, gpu.index)
