"""Heartbeats of all nodes of a cell, made in blocks of time as arrays and sorted by arrival."""

import numpy as np

from drills.simulate.jitter import Jitter
from drills.simulate.world import KEEPING, Outage, Outages
from outrider.signals import Signal

#: Arrival, witness, heartbeat.
Beat = tuple[float, int, Signal]
#: A woken agent sends its overdue heartbeat at once; its loop needs this long to come round.
WAKE_SECONDS = 0.02
#: The agent of a machine that boots starts this long after the kernel.
BOOT_AGENT_SECONDS = 20.0


class Beats:
    """Makes the heartbeats of `names`, each node on its own phase of the interval.

    `arrivals`: for witness 0, node -> arrival times, for the baselines.
    """

    def __init__(
        self, names: tuple[str, ...], witnesses: int, jitter: Jitter, outages: Outages, rng: np.random.Generator, start: float
    ) -> None:
        self.names, self.witnesses, self.jitter, self.outages, self.rng = names, witnesses, jitter, outages, rng
        self.until = start
        self._phase = start + rng.random(len(names)) * jitter.heartbeat
        self._sent = [0] * len(names)
        self._life: dict[str, tuple[str, int]] = {}
        #: Sent in an earlier block, still on the way.
        self._underway: list[Beat] = []
        self.arrivals: dict[str, list[float]] = {name: [] for name in names}
        #: node -> when its newest heartbeat left it.
        self.sent: dict[str, float] = {}

    def block(self, until: float) -> list[Beat]:
        """All heartbeats that arrive before `until`, in order. Call with growing times."""
        start, self.until = self.until, until
        rows, times = self._plain(start, until)
        out, self._underway = self._underway, []
        for row in [row for row, name in enumerate(self.names) if name in self.outages.by_node]:
            self._disturbed(row, start, until, out)
        delays = self.jitter.delays(self.rng, (self.witnesses, len(times)))
        for column, (row, sent) in enumerate(zip(rows, times, strict=True)):
            self._sent[row] += 1
            self._send(row, sent, delays[:, column].tolist(), out, None, ("b1", 1), self._sent[row])
        out.sort(key=lambda one: (one[0], one[1], one[2].node))
        split = len(out)
        while split and out[split - 1][0] >= until:
            split -= 1
        self._underway = out[split:]
        return out[:split]

    def _plain(self, start: float, until: float) -> tuple[list[int], list[float]]:
        """Nodes without any outage, all at once, in order of time."""
        calm = np.array([row for row, name in enumerate(self.names) if name not in self.outages.by_node], dtype=int)
        if not calm.size:
            return [], []
        beat = self.jitter.heartbeat
        first = np.ceil((start - self._phase[calm]) / beat)
        count = np.arange(int((until - start) / beat) + 2)
        times = self._phase[calm][:, None] + (first[:, None] + count) * beat
        rows = np.broadcast_to(calm[:, None], times.shape)
        chosen = (times >= start) & (times < until)
        times, rows = times[chosen], rows[chosen]
        order = np.argsort(times, kind="stable")
        return rows[order].tolist(), times[order].tolist()

    def _disturbed(self, row: int, start: float, until: float, out: list[Beat]) -> None:
        name, beat, phase = self.names[row], self.jitter.heartbeat, float(self._phase[row])
        outages = sorted(self.outages.by_node[name], key=lambda one: (one.start, one.end))
        number = int(np.ceil((start - phase) / beat))
        times = []
        while (t := phase + number * beat) < until:
            times.append(t)
            number += 1
        # A stopped agent's clock rings as soon as it wakes: one beat then, the next on the old beat.
        wakes = [one.end + WAKE_SECONDS for one in outages if one.kind in KEEPING and one.kind != "path_cut"]
        times = sorted({*times, *(t for t in wakes if start <= t < until)})
        delays = self.jitter.delays(self.rng, (self.witnesses, len(times)))
        for column, t in enumerate(times):
            standing = [one for one in outages if one.start <= t < one.end]
            if any(one.witnesses is None for one in standing):
                continue
            life = self._incarnation(outages, t)
            if life is None:
                continue
            if self._life.get(name, ("b1", 1)) != life:
                self._sent[row] = 0
            self._life[name] = life
            self._sent[row] += 1
            deaf = frozenset().union(*(one.witnesses for one in standing if one.witnesses is not None))
            self._send(row, t, delays[:, column].tolist(), out, deaf, life, self._sent[row])

    @staticmethod
    def _incarnation(outages: list[Outage], t: float) -> tuple[str, int] | None:
        """Boot and start number of the agent at `t`; None: it is not there yet."""
        boots = [one.end for one in outages if one.kind == "host_dead" and one.end <= t]
        starts = [one.end for one in outages if one.kind == "agent_dead" and one.end <= t]
        if boots and t < max(boots) + BOOT_AGENT_SECONDS:
            return None
        return f"b{1 + len(boots)}", 1 + len(starts)

    def _send(
        self,
        row: int,
        sent: float,
        delays: list[float],
        out: list[Beat],
        deaf: frozenset[int] | None,
        life: tuple[str, int],
        seq: int,
    ) -> None:
        name = self.names[row]
        self.sent[name] = sent
        data = {"boot": life[0], "start": life[1], "seq": seq, "sent_s": sent, "lag_s": 0.0}
        for witness, delay in enumerate(delays):
            if delay == np.inf or (deaf and witness in deaf):
                continue
            arrival = sent + delay
            if witness == 0:
                self.arrivals[name].append(arrival)
            out.append((arrival, witness, Signal(t=arrival, kind="heartbeat", node=name, source="agent", data=data)))
