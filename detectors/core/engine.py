"""One witness's judgement: signals and time in; votes, probe requests and early-copy requests out.

`signal.t` and `now` are on this witness's own monotonic clock: an edge whose agents run on other machines moves the
times that they wrote to its own clock first. The engine never compares `data.sent_s` (another machine's clock) with it.

What leaves: a `Vote` for each suspicion when it changes and, while it stands, twice within its life; and once a second
the witness's view, a vote with `reason_code == "view"` whose `extra["view"]` names the nodes that it has not heard
for half a time-out. By the view the council knows that a witness that says nothing of a suspect is up, and hears it.
"""

from collections.abc import Callable
from math import ceil, inf

from detectors.core.docket import Docket
from detectors.core.door import admit
from detectors.core.rulebook import Rulebook
from detectors.core.rules.domains import DomainRule
from detectors.core.rules.flapping import FlappingRule
from detectors.core.rules.silence import SilenceRule
from detectors.core.topology import topology_of
from detectors.core.types import Decision, Verdict, Vote
from detectors.core.window import NEVER, Arrivals
from detectors.core.world import World
from outrider.catalogue.codes import CodeBook
from outrider.config.policy import Policy
from outrider.fleet import Fleet
from outrider.signals import KINDS, Signal

#: How often a witness tells what it sees. Well below `vote_seconds`, and short beside the time that a probe takes.
VIEW_SECONDS = 1.0
#: Nodes that become late within this time are looked at in one sweep (0.1 ms for 12,500 nodes).
SWEEP_SECONDS = 0.05
#: Quiet nodes named in a view; more are only counted (`quiet_count`), for then it is a matter of the mass brake.
VIEW_NODES_MAX = 2_000
#: Low numbers that rise so often, over so many seconds, are those of an agent that began anew.
ANEW_BEATS, ANEW_SECONDS = 3, 1.5
#: Boots remembered per node; a heartbeat of one of them is an old one.
BOOTS_MAX = 4

#: Kinds so frequent that they themselves keep the deadline true; after every other kind it is computed anew.
HOT = frozenset({"heartbeat", "step"})

Handler = Callable[[Signal, float], None]


class Engine:
    """One witness.

    Args:
        fleet: who is there at the start; `job` signals tell of jobs later.
        policy: time-outs and limits.
        witness: this witness's name.
        witnesses: all of them.
        codes: the catalogue's Xids with the site's overrides; None: without any.
    """

    def __init__(
        self, fleet: Fleet, policy: Policy, witness: str, witnesses: tuple[str, ...], codes: CodeBook | None = None
    ) -> None:
        self.policy, self.witness, self.witnesses = policy, witness, witnesses
        self.world = World(fleet)
        size = len(self.world.nodes)
        self.arrivals = Arrivals(size, policy.heartbeat_timeout, policy.heartbeat_timeout_max)
        self.docket = Docket(witness, policy.vote_seconds)
        self.silence = SilenceRule(self.world, self.arrivals, self.docket, policy)
        topology = topology_of(fleet)
        self.rules = Rulebook(self.world, self.docket, policy, topology, self.silence, codes or CodeBook())
        self.domains = DomainRule(
            self.world, self.arrivals, self.docket, policy, self.silence, self.rules.locate, topology.above, self.rules.hangs.stands
        )  # fmt: skip
        self.silence.holds = self.domains.holds
        self.flapping = FlappingRule(self.world, self.docket, self.silence.cases.__contains__)
        self._boot: list[object] = [None] * size
        self._start: list[object] = [None] * size
        self._seq = [0] * size
        self._old_boots: list[tuple[object, ...]] = [()] * size
        #: Rows whose numbers are low: (when that began, the last such number, how many rose in a row).
        self._low: dict[int, tuple[float, float, int]] = {}
        self._silence_due = inf
        self._view_due = NEVER
        #: When `advance` has something to do: kept, because it is asked for after every signal.
        self._due = 0.0
        self._abstain_until = NEVER
        self._table: dict[str, Handler] = {
            **self.rules.handlers,
            "heartbeat": self._heartbeat,
            "probe": self.silence.probe,
            "step": self._step,
            "maintenance": self._maintenance,
        }

    # --- the machine ---

    def observe(self, signal: Signal, now: float) -> list[Decision]:
        """Takes one signal in; returns what follows from it at once."""
        handler = self._table.get(signal.kind)
        if handler is None:
            self.world.count("not judged" if signal.kind in KINDS else "unknown kind")
            return []
        admitted, left_out = admit(signal)
        if left_out:
            self.world.count("malformed")
            if admitted is None:
                return []
        handler(admitted or signal, now)
        if self.docket.dirty or self.silence.requests:
            decisions = self._out(now)
            self._due = self._earliest()
            return decisions
        if signal.kind not in HOT:
            self._due = self._earliest()
        return []

    def advance(self, now: float) -> list[Decision]:
        """Lets time do its work up to `now`."""
        if self._view_due == NEVER:
            self.world.begin(now)
        if now >= self._silence_due:
            late = self.arrivals.newly_late(now)
            for row in late:
                self.silence.open(row, f"{self._boot[row]}", self._seq[row], now)
            if late:
                self.domains.look(now)
            # On a grid: a thousand nodes that fall silent within a second are looked at together, not one by one.
            due = self.arrivals.next_late()
            self._silence_due = due if due == inf else max(due, ceil(due / SWEEP_SECONDS) * SWEEP_SECONDS)
        self.domains.advance(now, limit=self.silence.advance(now))
        self.flapping.advance(now)
        self.rules.advance(now)
        if self.docket.abstaining and now >= self._abstain_until:
            self._abstain(False)
        decisions: list[Decision] = []
        if now >= self.docket.due:
            decisions += self.docket.votes(now)
        decisions += self._out(now)
        if now >= self._view_due:
            self._view_due = now + VIEW_SECONDS
            decisions.append(self._view(now))
        self._due = self._earliest()
        return decisions

    def next_deadline(self) -> float | None:
        """When `advance` has something to do, at the latest."""
        return self._due

    def _earliest(self) -> float:
        due = min(self._silence_due, self.silence.next_due(), self.rules.next_due(), self.docket.due, self._view_due)
        due = min(due, self.domains.next_due(), self.flapping.next_due())
        if self.docket.abstaining:
            due = min(due, self._abstain_until)
        return max(due, 0.0)

    def note_stall(self, seconds: float, now: float) -> None:
        """This witness stood still for `seconds` (its edge has read all that was waiting, then tells): nobody else did.

        Arrivals move forward by the stall, and for one time-out its votes on silence are abstentions.
        """
        if seconds <= self.policy.stall_seconds:
            return
        self.arrivals.shift(seconds)
        self.arrivals.last[:] = self.arrivals.last.clip(max=now)
        self.silence.shift(seconds, now)
        self._silence_due = self.arrivals.next_late()
        self._abstain_until = now + self.policy.heartbeat_timeout
        self._abstain(True)
        self._due = self._earliest()

    # --- helpers of the machine ---

    def _abstain(self, abstaining: bool) -> None:
        self.docket.abstaining = abstaining
        for key, old in self.docket.suspicions.items():
            if "silence" in old.extra:
                self.docket.dirty[key] = None

    def _out(self, now: float) -> list[Decision]:
        decisions: list[Decision] = list(self.docket.changed(now))
        if self.silence.requests:
            decisions += self.silence.requests
            self.silence.requests.clear()
        return decisions

    def _view(self, now: float) -> Vote:
        quiet = self.arrivals.quiet(now, self.policy.heartbeat_timeout / 2)
        view = {
            "quiet": [self.world.nodes[row] for row in quiet[:VIEW_NODES_MAX]], "quiet_count": len(quiet),
            "late_count": len(self.silence.cases), "known": int(self.arrivals.judged.sum()),
            "abstains": self.docket.abstaining,
            "jobs": {state.name: [state.attempt, state.step] for state in self.world.jobs.values() if state.stepping},
        }  # fmt: skip
        return Vote(
            key=f"view|witness={self.witness}|", witness=self.witness, verdict=Verdict.CLEAR, fault="monitor.witness_lost",
            culprit="monitor", subject={"witness": self.witness}, incarnation="", response="watch", repair="none",
            layers=(), evidence=(), reason="what this witness sees", reason_code="view", t=now,
            expires_seconds=self.policy.vote_seconds, extra={"view": view},
        )  # fmt: skip

    # --- heartbeats ---

    def _heartbeat(self, signal: Signal, now: float) -> None:
        row = self.world.row.get(signal.node or "")
        if row is None:
            self.world.count("heartbeat of an unknown node")
            return
        data = signal.data
        boot, start, seq = data.get("boot"), data.get("start"), data.get("seq")
        if boot != self._boot[row] or (start is not None and start != self._start[row]):
            if not self._incarnation(row, boot, start, now):
                return
        elif seq is not None and seq <= self._seq[row] and not (start is None and self._began_anew(row, seq, now)):
            self.world.count("old heartbeat")
            return
        if seq is not None:
            self._seq[row] = seq
        arrivals = self.arrivals
        arrivals.heard(row, now)
        if arrivals.late[row]:
            arrivals.late[row] = False
            node = self.world.nodes[row]
            if (case := self.silence.cases.get(node)) is not None and not self.docket.abstaining:
                self.flapping.returned(node, now - case.since, now, alone=self.domains.alone(node))
            self.silence.heard(node, now)
            self.rules.excuse(node, now)
            self.domains.heard(now)
            self._silence_due = min(self._silence_due, now + arrivals.floor)
            self._due = min(self._due, self._silence_due, self.flapping.next_due())
        elif arrivals.count[row] == self.policy.heartbeats_before_judging:
            arrivals.judged[row] = True
            self._silence_due = min(self._silence_due, now + arrivals.floor)
            self._due = min(self._due, self._silence_due)

    def _incarnation(self, row: int, boot: object, start: object, now: float) -> bool:
        """A heartbeat of another boot or another start of the agent: True if it is the newer one."""
        known = self._boot[row]
        again = known is not None and boot != known
        if again:
            if boot in self._old_boots[row]:
                self.world.count("heartbeat of an old boot")
                return False
            self._old_boots[row] = (*self._old_boots[row], known)[-BOOTS_MAX:]
        elif boot == known and _older(start, self._start[row]):
            self.world.count("heartbeat of an old agent")
            return False
        self._boot[row], self._start[row], self._seq[row] = boot, start, 0
        if known is None or again:
            self.rules.booted(self.world.nodes[row], boot, again, now)
            self._due = self._earliest()
        return True

    def _began_anew(self, row: int, seq: float, now: float) -> bool:
        """An agent that tells no start number counts from 1 again: numbers that are low but rise at the pace of life.

        Late datagrams are low too, but they come in one burst.
        """
        first_t, last, rising = self._low.get(row, (now, 0.0, 0))
        if seq <= last:
            first_t, rising = now, 0
        self._low[row] = (first_t, seq, rising + 1)
        if rising + 1 >= ANEW_BEATS and now - first_t >= ANEW_SECONDS:
            del self._low[row]
            return True
        return False

    # --- everything else ---

    def _step(self, signal: Signal, now: float) -> None:
        state = self.rules.step(signal, now)
        if state is None:
            return
        if state.newest and state.steps_seen == 1 and state.attempt > 1:
            self._view_due = now  # the council waits for the first step of a new attempt
        if state.newest:
            self._due = self._earliest()
        if self.silence.cases and (state.newest or signal.node in self.silence.cases):
            self.silence.moved([node for node in self.silence.cases if node in state.node_ranks], now)

    def _maintenance(self, signal: Signal, now: float) -> None:
        row = self.world.row.get(signal.node or "")
        if row is None:
            return
        if signal.value == "on":
            self.arrivals.judged[row] = False
            self.arrivals.late[row] = False
            self.silence.heard(self.world.nodes[row], now)
        else:
            # A fresh time-out of grace: silence before the window's end counts for nothing.
            self.arrivals.judged[row] = self.arrivals.count[row] >= self.policy.heartbeats_before_judging
            if self.arrivals.judged[row]:
                self.arrivals.last[row] = now
                self._silence_due = min(self._silence_due, now + self.arrivals.floor)


def _older(start: object, known: object) -> bool:
    return isinstance(start, int | float) and isinstance(known, int | float) and start < known
