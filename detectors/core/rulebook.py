"""All rules of one witness together: which kind of signal goes to which of them, and what they tell each other.

Rules do not know one another. What one finds and another needs (a job that stands still, a node whose ports are all dark,
a rank that ended on a suspect card) passes through here.
"""

from collections.abc import Callable

from detectors.core.blame import Cause, common_causes, most_accused
from detectors.core.docket import Docket
from detectors.core.parts import Parts
from detectors.core.rules.exits import ExitRule
from detectors.core.rules.gpu_codes import GpuCodeRule
from detectors.core.rules.gpu_driver import GpuDriverRule
from detectors.core.rules.gpu_health import GpuHealthRule
from detectors.core.rules.hang import HangRule
from detectors.core.rules.host import OOM_SECONDS, HostRule
from detectors.core.rules.links import COMPLAINT_SECONDS, LinkRule
from detectors.core.rules.loss import LossRule
from detectors.core.rules.pace import PaceRule
from detectors.core.rules.resume import ResumeRule
from detectors.core.rules.silence import SilenceRule
from detectors.core.topology import Topology
from detectors.core.types import Evidence
from detectors.core.world import JobState, World
from outrider.catalogue.codes import CodeBook
from outrider.config.policy import Policy
from outrider.signals import Signal

Handler = Callable[[Signal, float], None]


class Rulebook:
    """The rules of one witness.

    Args:
        world, docket, policy: what is known, where suspicions are kept, time-outs.
        topology: who shares what.
        silence: the rule for silent nodes, which the engine drives itself.
        codes: the catalogue's codes with the site's overrides.
    """

    def __init__(
        self, world: World, docket: Docket, policy: Policy, topology: Topology, silence: SilenceRule, codes: CodeBook
    ) -> None:
        self.world, self.docket, self.topology, self.silence = world, docket, topology, silence
        self.parts = Parts(world.fleet)
        self.codes = GpuCodeRule(world, self.parts, docket, codes)
        self.health = GpuHealthRule(world, self.parts, docket)
        self.driver = GpuDriverRule(world, self.parts, docket, self.health.odd_one)
        self.links = LinkRule(world, docket, self.locate)
        self.host = HostRule(world, docket, self.locate)
        self.exits = ExitRule(
            world, docket, self._explains_exit, self._suspect_seat, self._undecided_seat, self._doubts, self._blamed
        )  # fmt: skip
        self.hangs = HangRule(world, docket, policy, silence.age, self.health.odd_of)
        self.pace = PaceRule(world, docket)
        self.loss = LossRule(world, docket)
        self.resume = ResumeRule(world, docket)
        self.handlers: dict[str, Handler] = {
            "xid": self._suspects(self.codes.code),
            "sxid": self._suspects(self.codes.code),
            "ecc": self.health.ecc,
            "row_remap": self.health.row_remap,
            "nvlink": self.health.nvlink,
            "pcie": self.health.pcie,
            "gpu_state": self.health.state,
            "gpu_count": self.health.count,
            "driver_call": self._suspects(self.driver.driver_call),
            "link": self._suspects(self.links.link),
            "port_counters": self.links.counters.read,
            "kernel": self._suspects(self._kernel),
            "storage": self._suspects(self.host.storage),
            "reclaim": self.host.reclaim,
            "collective_timeout": self._collective_timeout,
            "collective_error": self._collective_error,
            "flight_record": self._flight_record,
            "phase": self._phase,
            "job": self._job,
            "process_exit": self._process_exit,
            "snapshot": self.resume.snapshot,
            "witness": self._witness,
        }

    # --- steps: the hot path ---

    def step(self, signal: Signal, now: float) -> JobState | None:
        """A finished step."""
        state = self.world.step(signal, now)
        if state is None:
            return None
        if self.world.restarted:
            self._restarted(now)
        data = signal.data
        if state.newest:
            self.hangs.moved(state, now)
            if state.steps_seen <= 6:
                self.hangs.wake()
                if state.steps_seen == 1:
                    self._forget(state, now)
        self.pace.step(state, signal, now)
        if "loss" in data or "grad_norm" in data or "lr" in data or self.loss.knows(state.name):
            self.loss.step(state, signal, now)
            self.resume.step(state, signal, now)
        if self.pace.slow_seats:
            for node, gpu, text in self.pace.slow_seats:
                self.health.slow(node, gpu, text, now)
            self.pace.slow_seats.clear()
        return state

    # --- time ---

    def advance(self, now: float) -> None:
        """Lets time do its work in every rule whose time has come."""
        if now >= self.links.next_due():
            self.links.advance(now)
            for node, text in self.links.dark_nodes:
                self.silence.confirming(node, text, now)
            self.links.dark_nodes.clear()
        if now >= self.codes.next_due():
            self.codes.advance(now)
        if now >= self.exits.next_due():
            self.exits.advance(now)
        if now >= self.hangs.next_due():
            self.hangs.advance(now)
            self._standing(now)

    def next_due(self) -> float:
        """When `advance` has something to do."""
        return min(self.links.next_due(), self.codes.next_due(), self.exits.next_due(), self.hangs.next_due())

    # --- what passes between rules ---

    def booted(self, node: str, boot: object, again: bool, now: float) -> None:
        """A heartbeat tells of a boot: the first one known, or another one."""
        self.codes.booted(node, boot, again, now)
        if again:
            self.host.rebooted(node, now)

    def _suspects(self, handler: Handler) -> Handler:
        """A handler of signals that may name the reason why a job stands still already."""

        def handle(signal: Signal, now: float) -> None:
            handler(signal, now)
            if self.hangs.accused:
                self._explain(sorted(self.hangs.accused.items()), now)

        return handle

    def excuse(self, node: str, now: float) -> None:
        """A silent node is back: whatever its jobs waited for is over, and their pace is judged from here on."""
        for state in self.world.jobs_on(node):
            if state.name not in self.hangs.accused:
                state.moved_t = max(state.moved_t, now)

    def _standing(self, now: float) -> None:
        standing, self.hangs.standing = self.hangs.standing, []
        self._explain(standing, now)

    def _explain(self, standing: list[tuple[str, str]], now: float) -> None:
        """Jobs that stand still are evidence against the suspects among their parts."""
        for job, text in standing:
            # The suspects first: a job's standing still then joins the incident of its cause.
            self.codes.stands(job, now, text)
            self.driver.stands(job, now, text)
            self.health.stands(job, now, text)
            self.links.stands(job, now, text)
            self.host.stands(job, now, text)
            self.docket.last(job)

    def locate(self, failing: set[tuple[str, ...]], working: set[tuple[str, ...]]) -> list[Cause]:
        """The common causes of failing parts."""
        return common_causes(self.topology, failing, working)

    def _explains_exit(self, state: JobState, rank: int, text: str, now: float) -> tuple[str, Evidence] | bool:
        """Whether a suspect card, or the kernel's want of memory, explains that a rank ended."""
        if not 0 <= rank < state.size:
            return False
        node, index = state.slots[rank]
        if self.codes.exit(state.name, rank, node, index, text, now):
            return True
        killed = self.host.oom.get(node)
        if killed is not None and now - killed[0] <= OOM_SECONDS:
            return "job.oom", Evidence(t=killed[0], kind="kernel", subject={"node": node}, effect="confirm", text=killed[1])
        if self.host.exit(state.name, rank, node, text, now) or self.links.exit(state, rank, node, text, now):
            return True
        return self.driver.exit(state.name, rank, node, index, text, now)

    def _suspect_seat(self, state: JobState, rank: int, now: float) -> bool:
        """Whether a rank's own card is suspect, or a port of its node has been dark for longer than a blink."""
        node, index = state.slots[rank]
        return self.codes.suspects(node, index, now) or self.links.has_dark(state, node, now)

    def _undecided_seat(self, state: JobState, rank: int, now: float) -> float | None:
        node, index = state.slots[rank]
        return None if self.codes.suspects(node, index, now) else self.links.undecided(state, node, now)

    def _doubts(self, state: JobState) -> bool:
        return any(node in state.node_ranks for node in self.silence.cases)

    def _blamed(self, state: JobState, now: float) -> str | None:
        """The node of a job that most of its ranks' transport errors name."""
        told = [
            (accuser, node)
            for node, complaints in sorted(self.silence.complaints.items())
            for when, accuser, _ in complaints
            if node in state.node_ranks and now - when <= COMPLAINT_SECONDS
        ]
        return most_accused(told)

    # --- handlers of more than one rule ---

    def _kernel(self, signal: Signal, now: float) -> None:
        told = self.host.kernel(signal, now)
        if told is None:
            return
        event, text = told
        node = str(signal.node)
        if event == "panic":
            self.silence.confirming(node, text, now)
        elif event == "hung_task":
            self.driver.hung_task(node, text, now)
        elif event == "boot":
            known, told_boot = self.codes.boots.get(node), signal.data.get("boot")
            if known is not None and told_boot is not None and told_boot != known:
                self.booted(node, told_boot, True, now)

    def _collective_timeout(self, signal: Signal, now: float) -> None:
        if self.world.job_of(signal, now) is not None:
            self.exits.complained(signal, now)
            self.hangs.timeout(signal, now)
            self._standing(now)

    def _flight_record(self, signal: Signal, now: float) -> None:
        if self.world.job_of(signal, now) is not None:
            self.hangs.flight_record(signal, now)
            self._standing(now)

    def _collective_error(self, signal: Signal, now: float) -> None:
        if self.world.job_of(signal, now) is None or signal.data.get("recovered"):
            return
        self.exits.complained(signal, now)
        accused, accuser = self.world.accused_node(signal), self.world.node_of(signal)
        self.links.complaint(signal, accuser, accused, now)
        if accused is not None and accused != accuser:
            text = signal.text or f"rank {signal.rank} lost its peer on {accused} ({signal.data.get('code', 'error')})"
            self.silence.complaint(accused, accuser or f"rank {signal.rank}", text, now)

    def _phase(self, signal: Signal, now: float) -> None:
        state = self.world.phase(signal, now)
        if state is not None:
            if state.moved_t == now:
                self.hangs.moved(state, now)
            self.hangs.wake()
            if self.silence.cases:
                self.silence.moved([node for node in self.silence.cases if node in state.node_ranks], now)
            self._restarted(now)

    def _job(self, signal: Signal, now: float) -> None:
        if self.world.tell_job(signal, now) is not None:
            self.hangs.wake()
            self._restarted(now)

    def _process_exit(self, signal: Signal, now: float) -> None:
        self.exits.exit(signal, now)
        self._restarted(now)

    def _witness(self, signal: Signal, now: float) -> None:
        if signal.witness is None:
            return
        up, subject = signal.data.get("up"), {"witness": signal.witness}
        if up is False:
            piece = Evidence(
                t=now, kind="witness", subject=subject, effect="confirm", text=f"{signal.witness} is down", layer="operator"
            )
            self.docket.accuse(
                "monitor.witness_lost", subject, now=now, evidence=(piece,), reason=f"witness {signal.witness} is down",
                reason_code="down",
            )  # fmt: skip
        elif up is True:
            self.docket.clear_subject("monitor.witness_lost", subject, now, "it is up again")

    # --- attempts ---

    def _restarted(self, now: float) -> None:
        """Jobs that began a new attempt: what the rules remember of the old one is void."""
        while self.world.restarted:
            state = self.world.jobs.get(self.world.restarted.pop())
            if state is not None:
                self.exits.new_attempt(state, now)
                self.hangs.new_attempt(state)

    def _forget(self, state: JobState, now: float) -> None:
        """The first step of an attempt: what was suspected of earlier attempts is settled."""
        for key, old in list(self.docket.suspicions.items()):
            attempt = old.extra.get("attempt")
            if attempt is not None and attempt < state.attempt and old.subject.get("job") == state.name:
                self.docket.clear(key, now, f"{state.name} steps again, in attempt {state.attempt}")
