"""Plays one episode: the real engines and the real council in virtual time, from deadline to deadline.

Times in an episode are its own: the first event happens at `T0`. The network, the ledger, the probers and the job are virtual;
how long they take is written beside each constant and printed with every result.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from math import inf
from typing import Any, Final

import numpy as np

from detectors.core.council import Council
from detectors.core.engine import Engine
from detectors.core.types import Action, ActionResult, CopyRequest, Decision, IncidentChange, ProbeRequest, Vote
from drills.simulate.beats import Beat, Beats
from drills.simulate.cell import JOB, Cell
from drills.simulate.jitter import Jitter
from drills.simulate.job_run import SNAPSHOT_SECONDS, JobRun
from drills.simulate.options import Options
from drills.simulate.record import Record
from drills.simulate.world import HOLDING, Job, Kind, Outage, Outages, Truth
from outrider.config.agent import AgentSection
from outrider.config.ledger import LedgerSection
from outrider.config.policy import Policy
from outrider.signals import Signal

#: When the first event of an episode happens; before it come the steps that teach the engines the job's rhythm.
T0: Final = 1_000.0
#: Heartbeats begin this long before; the engines judge a node after three.
LEAD_SECONDS: Final = 8.0
BLOCK_SECONDS: Final = 30.0
#: An agent posts its signals as soon as it has them: the way over the network and through the witness's queue.
SIGNAL_SECONDS: Final = (0.005, 0.1)
#: A vote's way into the ledger (a commit takes 2 to 3 ms) and out to the leader, who looks each `poll_seconds`, in its turn.
VOTE_SECONDS: Final = (0.005, 0.04 + LedgerSection().poll_seconds)
#: An order's way through the ledger to an agent that waits for one.
ORDER_SECONDS: Final = (0.01, 0.08 + LedgerSection().poll_seconds)
#: How long a prober waits where nothing answers.
PROBE_SECONDS: Final = AgentSection().probe_seconds
#: How long after a fault an episode goes on if nothing happens; scripts of slow faults ask for more.
HORIZON_SECONDS: Final = 90.0


class Episode:
    """One episode; fault scripts use `outage`, `send`, `exit`, `job_run` and the like, then `run` plays it."""

    def __init__(self, cell: Cell, policy: Policy, options: Options, jitter: Jitter, rng: np.random.Generator) -> None:
        self.cell, self.policy, self.options, self.rng = cell, policy, options, rng
        self.witnesses = cell.fleet.witnesses
        self.engines = [Engine(cell.fleet, policy, name, self.witnesses) for name in self.witnesses]
        self.council = Council(cell.fleet, policy, self.witnesses)
        self._machines: tuple[Engine | Council, ...] = (*self.engines, self.council)
        #: Next deadline of each machine, and the machines whose deadline may have changed.
        self._due = [inf] * len(self._machines)
        self._touched = set(range(len(self._machines)))
        self.outages, self.record = Outages(), Record()
        #: When the episode ends unless something asks for more.
        self.horizon = T0
        names = tuple(node.node for node in cell.fleet.nodes)
        self.beats = Beats(names, len(self.witnesses), jitter, self.outages, rng, T0 - LEAD_SECONDS)
        self.job = Job(options.step, T0 + float(rng.random()) * options.step)
        self.job_run = JobRun(self)
        self.now = T0 - LEAD_SECONDS
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._number = 0
        self._cuts: list[float] = []
        #: (witness, from, until, votes too): witnesses that are cut off; (witness, from, until): those that stand still.
        self._deaf: list[tuple[int, float, float, bool]] = []
        self._stalls: list[tuple[int, float, float]] = []
        self._asleep: set[int] = set()
        self._stop_when: str | None = None
        self._asked: set[str] = set()

    # --- what scripts use ---

    def at(self, t: float, do: Callable[..., None], *arguments: Any) -> None:
        """Does something at a time."""
        self._number += 1
        heappush(self._heap, (t, self._number, do, arguments))

    def happen(self, t: float, do: Callable[..., None], *arguments: Any) -> None:
        """Does something at a time that may take nodes out from then on."""
        self._cuts.append(t)
        self.ends(t + 1.0)
        self.at(t, do, *arguments)

    def outage(self, node: str, kind: Kind, start: float, seconds: float = inf, witnesses: frozenset[int] | None = None) -> None:
        """Takes a node out; if its ranks stand still the job is held."""
        end = start + seconds
        self.outages.add(Outage(node, kind, start, end, witnesses))
        if kind in HOLDING and node in self.cell.members:
            self.at(start, self.job_run.hold, ("outage", node))
            if end < inf and kind != "host_dead":  # processes do not outlive a reboot
                self.at(end, self.job_run.release, [("outage", node)])

    def send(self, t: float, by: str, kind: str, /, **fields: Any) -> None:
        """The agent of the node `by` sees something at `t` and tells every witness, as soon as it can."""
        self.at(t, self._send, by, kind, fields)

    def tell(self, t: float, kind: str, /, **fields: Any) -> None:
        """Something that does not come through one node's agent (a switch's collector, a console log, a job's own word)."""
        self.at(t, self.deliver, Signal(t=t, kind=kind, **fields))

    def cut_witness(self, index: int, start: float, seconds: float, *, votes: bool) -> None:
        """A witness hears nobody for a while; with `votes` its own votes do not get out either. What it missed comes later."""
        for node in self.cell.fleet.nodes:
            self.outage(node.node, "path_cut", start, seconds, frozenset({index}))
        self._deaf.append((index, start, start + seconds, votes))

    def stall_witness(self, index: int, start: float, seconds: float) -> None:
        """A witness's process stands still; then it reads all that has waited, and its edge tells the engine of the stall."""
        end = start + seconds
        self._stalls.append((index, start, end))
        self.at(start, self._sleep, index)
        # After everything that waited: the heap keeps the order of equal times.
        self.at(end + 1e-6, self._woke, index, seconds)

    def exit(self, t: float, rank: int, code: int, reason: str | None = None) -> None:
        """A rank's process ends; the launcher beside it tells."""
        node = self.job_run.slots[rank][0]
        data = {"attempt": self.job.attempt} | ({"reason": reason} if reason else {})
        self.send(t, node, "process_exit", job=JOB, rank=rank, value=code, data=data, source="launcher")
        if code not in (0, -15) and (self.record.first_exit is None or t < self.record.first_exit[0]):
            self.record.first_exit = (t, node)
        self.at(t, self.job_run.hold, ("app", ""))

    def truth(self, truth: Truth) -> None:
        """Tells the checkers what this is; the episode goes on until a verdict could be expected."""
        self.record.truths.append(truth)
        self.ends(truth.t + HORIZON_SECONDS)

    def ends(self, t: float) -> None:
        """The episode goes on until `t` at least."""
        self.horizon = max(self.horizon, t)

    def uniform(self, low: float, high: float) -> float:
        """A number between `low` and `high`."""
        return float(self.rng.uniform(low, high))

    # --- playing ---

    def run(self, stop_when: str | None = None) -> Record:
        """Plays until the horizon, or until the job has recovered and stepped again.

        Args:
            stop_when: fault class whose confirmation ends the episode, for who wants no more than its time.
        """
        self._stop_when = stop_when
        self.job_run.teach()
        self.job_run.plan_step()
        beats: list[Beat] = []
        place = 0
        while self.now < self.horizon:
            for index in self._touched:
                due = self._machines[index].next_deadline()
                self._due[index] = inf if due is None or index in self._asleep else due
            self._touched.clear()
            used_up = place == len(beats)
            beat = self.beats.until if used_up else beats[place][0]
            event, deadline = self._heap[0][0] if self._heap else inf, min(self._due)
            self.now = now = max(self.now, min(beat, event, deadline))
            if deadline <= now:
                index = self._due.index(deadline)
                self._touched.add(index)
                self._take(self._machines[index].advance(now))
            elif event <= now:
                _, _, do, arguments = heappop(self._heap)
                do(*arguments)
            elif used_up:
                beats, place = self.beats.block(self._block_end(now)), 0
            else:
                self._beat(*beats[place])
                place += 1
        self.record.end, self.record.arrivals, self.record.sent = self.now, self.beats.arrivals, self.beats.sent
        return self.record

    def _block_end(self, now: float) -> float:
        """Blocks end where something may take nodes out, so that it is known before the next beats are made."""
        return min([self.horizon, now + BLOCK_SECONDS, *(cut for cut in self._cuts if cut > now)])

    def _stalled_until(self, index: int) -> float:
        return max((end for who, start, end in self._stalls if who == index and start <= self.now < end), default=0.0)

    def _sleep(self, index: int) -> None:
        self._asleep.add(index)
        self._touched.add(index)

    def _woke(self, index: int, seconds: float) -> None:
        self._asleep.discard(index)  # its edge has read its sockets, and tells of the stall before it lets time do its work
        self.engines[index].note_stall(seconds, self.now)
        self._touched.add(index)

    def _hear(self, index: int, signal: Signal) -> None:
        """One witness hears a signal, now or when it can."""
        later = self._stalled_until(index)
        if signal.kind != "heartbeat":
            later = max([later, *(end for who, start, end, _ in self._deaf if who == index and start <= self.now < end)])
        if later > self.now:
            self.at(later, self._hear, index, signal)
            return
        self._touched.add(index)
        self._take(self.engines[index].observe(signal, self.now))

    def _beat(self, _t: float, witness: int, signal: Signal) -> None:
        self.record.heartbeats += 1
        if self._stalls and self._stalled_until(witness):
            self._hear(witness, signal)
            return
        decisions = self.engines[witness].observe(signal, self.now)
        if decisions:
            self._take(decisions)
        if decisions or self.now < T0:
            # A beat that decides nothing only puts deadlines off, once its node is judged: the old one costs an idle look.
            self._touched.add(witness)

    # --- the virtual world's answers ---

    def _take(self, decisions: list[Decision]) -> None:
        for decision in decisions:
            match decision:
                case Vote():
                    if self._deaf and self._mute(decision.witness):
                        continue
                    self.at(self.now + self.uniform(*VOTE_SECONDS), self._council, decision)
                case ProbeRequest():
                    self._probe(decision)
                case CopyRequest():
                    self.record.copies.append((self.now, decision))
                case IncidentChange():
                    self.record.changes.append(decision)
                    if decision.event == "confirmed" and decision.fault == self._stop_when:
                        self.horizon = self.now
                case Action():
                    self._act(decision)

    def _mute(self, witness: str) -> bool:
        index = self.witnesses.index(witness)
        return any(votes and who == index and start <= self.now < end for who, start, end, votes in self._deaf)

    def _council(self, event: Any) -> None:
        self._touched.add(len(self.engines))
        self._take(self.council.observe(event, self.now))

    def _probe(self, request: ProbeRequest) -> None:
        if request.decision_id in self._asked:
            return
        self._asked.add(request.decision_id)
        for prober in request.probers:
            asked = self.now + self.uniform(*ORDER_SECONDS)
            self.at(asked, self._look, prober, request.node)

    def _look(self, prober: str, node: str) -> None:
        if self.outages.sends_at(prober, self.now) is None or self.outages.answer(prober, self.now) != "reply":
            return
        answer = self.outages.answer(node, self.now)
        took = PROBE_SECONDS if answer in ("none", "mute") else self.uniform(0.0005, 0.003)
        data = {"by": prober, "answer": answer, "seconds": took}
        self.send(self.now + took, prober, "probe", node=node, data=data)

    def _act(self, action: Action) -> None:
        self.record.actions.append(action)
        if action.refused is not None:
            return
        took = SNAPSHOT_SECONDS if action.action == "snapshot" else 0.3
        self.at(self.now + took, self._council, ActionResult(decision_id=action.decision_id, outcome="done"))
        if action.action == "restart" and action.target.get("job") == JOB:
            self.job_run.restart(action)

    # --- signals ---

    def _send(self, node: str, kind: str, fields: dict[str, Any]) -> None:
        when = self.outages.sends_at(node, self.now)
        if when is None:
            return
        source = fields.pop("source", "agent")
        fields.setdefault("node", node)
        if when > self.now:
            fields["data"] = {**fields.get("data", {}), "observed_s": self.now}
        arrival = when + self.uniform(*SIGNAL_SECONDS)
        self.at(arrival, self.deliver, Signal(t=arrival, kind=kind, source=source, **fields))

    def deliver(self, signal: Signal) -> None:
        """Every witness hears a signal, as soon as it can; the council what is for it."""
        self.record.signals += 1
        for index in range(len(self.engines)):
            self._hear(index, signal)
        if signal.kind in ("job", "snapshot", "maintenance", "phase"):
            self._council(signal)
