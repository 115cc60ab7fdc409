"""Ranks as processes: found without the SDK, their ends seen at once, and those that are stopped, stuck in the kernel or zombies.

A rank is found by what its starter put into its environment (Outrider's launcher, torchrun, Slurm, Kubernetes). A pidfd tells of
its end the moment it comes, whoever the parent is. Ranks that speak to the agent themselves are told by the agent; here only
their state is looked at. Witnesses: `job.rank_exit`, `job.oom`, `node.hung`. Cost: a look at each new process, and a line of /proc
for each rank every 2 s. Rights: root, to see other users' ranks. Source of the meaning: proc(5), pidfd_open(2), torchrun's and
Slurm's manuals.
"""

import os
import select
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from collectors.agent.exits import exit_code, open_process
from collectors.frame.changes import Changes
from collectors.frame.files import list_folder, read_text
from collectors.frame.types import Collector, News, Note, NotSupported, Outcome, Place, Readings, Sample
from collectors.pods import pod_uid
from collectors.rank_names import Found, Process, belongs_here, choose_ranks, name_rank, parse_environment, parse_stat
from collectors.slurm_jobs import slots_of
from outrider.launchers import world_of
from outrider.signals import Signal

#: Pace of looking at known ranks, and of looking for new ones.
STATE_SECONDS, FIND_SECONDS = 2.0, 10.0
#: A state must last so long to be told: every process sleeps in the kernel now and then.
LASTS_SECONDS = {"disk": 10.0, "stopped": 1.0, "zombie": 5.0}
_STATES = {"D": "disk", "T": "stopped", "t": "stopped", "Z": "zombie", "X": "gone"}
#: Readings of a process's environment, each `FIND_SECONDS` after the other, before it is held to be no rank.
LOOKS_MAX = 3


class Processes(Collector):
    """See the module."""

    name: ClassVar[str] = "processes"
    interval_seconds: ClassVar[float] = STATE_SECONDS

    def __init__(self, place: Place, note: Note) -> None:
        super().__init__(place, note)
        self._proc = Path(place.section.proc_root)
        self._epoll = select.epoll()
        self._known: dict[int, Process] = {}
        self._ranks: dict[int, Found] = {}
        self._watched: dict[int, int] = {}
        self._news = News()
        self._since: dict[int, tuple[str, float]] = {}
        self._told: dict[int, str] = {}
        self._changes = Changes()
        self._found_at = float("-inf")

    def supported(self) -> NotSupported | None:
        return None if (self._proc / "self").exists() else NotSupported(f"{self._proc} is not there")

    def fileno(self) -> int | None:
        return self._epoll.fileno()

    def told(self, news: News) -> None:
        self._news = news

    def close(self) -> None:
        for descriptor in self._watched.values():
            os.close(descriptor)
        self._watched.clear()
        self._epoll.close()

    def read(self, now: float) -> Outcome:
        signals = self._ended(now)
        if now - self._found_at >= FIND_SECONDS:
            self._found_at = now
            self._find()
            signals += self._jobs(now)
        signals += self._states(now)
        counts = Counter(state for state, _ in self._since.values())
        samples = [
            Sample("outrider_rank_processes", float(counts.get(state, 0)), {"state": state})
            for state in ("running", "disk", "stopped", "zombie")
        ]
        return Readings(signals=signals, samples=samples)

    def _find(self) -> None:
        """Looks at processes that are new; a known one is recognised by its pid and birth."""
        known: dict[int, Process] = {}
        for name in list_folder(self._proc):
            if not name.isdecimal():
                continue
            stat = parse_stat(read_text(f"{self._proc}/{name}/stat") or "")
            if stat is None:
                continue
            command, state, parent, born = stat
            before = self._known.get(int(name))
            if state in "ZX":  # its end has been told; a parent that does not reap it must not make it a rank again
                known[int(name)] = Process(int(name), parent, born, command, {}, LOOKS_MAX)
                continue
            same = before is not None and before.born == born
            # A process that has just been forked still has its starter's environment, and often its name: one that names no rank
            # is looked at again, but not for ever.
            if before is not None and same and (before.looks >= LOOKS_MAX or name_rank(before)):
                known[before.pid] = before if before.parent == parent else replace(before, parent=parent)
                continue
            self.note("environment of a process", process=int(name))
            environment = parse_environment(read_text(f"{self._proc}/{name}/environ") or "")
            looks = before.looks + 1 if before is not None and same else 1
            known[int(name)] = Process(int(name), parent, born, command, environment, looks)
        self._known = known
        chosen = choose_ranks(process for process in known.values() if belongs_here(process, self.place.node))
        for pid in self._ranks.keys() - {found.pid for found in chosen}:
            # It lives, and others have turned out to be the ranks: torchrun's own process, before it has workers.
            if pid in known and known[pid].environment:
                self._unwatch(pid)
        for found in chosen:
            if found.pid not in self._ranks:
                self._watch(found)

    def _jobs(self, now: float) -> list[Signal]:
        """Jobs that their ranks' environment describes: whole (Slurm, or all ranks on this node), else those here, which the
        witnesses put together. Those that speak for themselves the agent tells. That they are synchronous nobody has said, so
        their steps prove nothing about other nodes."""
        signals = []
        spoken = {rank.job for rank in self._news.ranks}
        speakers = {rank.pid for rank in self._news.ranks}
        jobs: dict[str, list[Found]] = {}
        for found in self._ranks.values():
            if found.job not in spoken and found.pid not in speakers and found.pid in self._known:
                jobs.setdefault(found.job, []).append(found)
        self._changes.forget_others(set(jobs))
        for job, ranks in sorted(jobs.items()):
            environment = self._known[ranks[0].pid].environment
            attempt, world = max(found.attempt for found in ranks), world_of(environment)
            here = sorted({found.rank: found.gpu or 0 for found in ranks if found.attempt == attempt}.items())
            slots = slots_of(environment)
            if not slots and world == len(here) and [rank for rank, _ in here] == list(range(world)):
                slots = [(self.place.node, gpu) for _, gpu in here]
            data: dict[str, object] = {"attempt": attempt, "synchronous": False, "told_by": ranks[0].told_by}
            if ranks[0].base is not None:
                data["base"] = ranks[0].base
            if slots:
                data["slots"] = slots
            elif world and len(here) < world:
                data |= {"world": world, "members": here}
            else:
                continue
            if self._changes.due(job, (attempt, slots or here), now):
                signals.append(self.signal(now, "job", attempt, job=job, data=data))
        return signals

    def _watch(self, found: Found) -> None:
        descriptor = open_process(found.pid, found.born)
        if descriptor is None:
            return
        cgroup = read_text(self._proc / str(found.pid) / "cgroup") or ""
        oom_file = self._oom_file(cgroup)
        self._ranks[found.pid] = replace(found, pod=pod_uid(cgroup), oom_file=oom_file, oom_kills=_oom_kills(oom_file))
        self._watched[found.pid] = descriptor
        self._epoll.register(descriptor, select.EPOLLIN)

    def _unwatch(self, pid: int) -> Found:
        descriptor = self._watched.pop(pid)
        self._epoll.unregister(descriptor)
        os.close(descriptor)
        self._since.pop(pid, None)
        return self._ranks.pop(pid)

    def _ended(self, now: float) -> list[Signal]:
        signals = []
        ready = {descriptor for descriptor, _ in self._epoll.poll(0)}
        for pid, descriptor in list(self._watched.items()):
            if descriptor not in ready:
                continue
            code = exit_code(descriptor, pid, self._ranks[pid].born)
            found = self._unwatch(pid)
            if any(pid == rank.pid or (found.job, found.rank) == (rank.job, rank.rank) for rank in self._news.ranks):
                continue  # the agent tells of those that speak to it
            signals.append(self._exit(found, code, now))
        return signals

    def _exit(self, found: Found, code: int | None, now: float) -> Signal:
        data: dict[str, object] = {"seen_by": "kernel", "told_by": found.told_by}
        if found.base is None:
            data["attempt"] = found.attempt
        if found.pod:
            data["pod"] = found.pod
        if code == -9 and _oom_kills(found.oom_file) > found.oom_kills:
            data["reason"] = "oom"
        return self.signal(now, "process_exit", code, job=found.job, rank=found.rank, gpu=found.gpu, process=found.pid, data=data)

    def _states(self, now: float) -> list[Signal]:
        """Ranks that stand still in a way that the kernel can see, and those that run again."""
        signals = []
        subjects = {pid: (one.job, one.rank) for pid, one in self._ranks.items()}
        subjects |= {rank.pid: (rank.job, rank.rank) for rank in self._news.ranks}
        self._since = {pid: since for pid, since in self._since.items() if pid in subjects}
        self._told = {pid: state for pid, state in self._told.items() if pid in subjects}
        for pid, (job, rank) in subjects.items():
            stat = parse_stat(read_text(f"{self._proc}/{pid}/stat") or "")
            if stat is None:
                self._since.pop(pid, None)
                continue
            state = _STATES.get(stat[1], "running")
            before, since = self._since.get(pid, (state, now))
            since = since if state == before else now
            self._since[pid] = (state, since)
            told = self._told.get(pid, "running")
            if state != told and now - since >= LASTS_SECONDS.get(state, 0.0):
                self._told[pid] = state
                data = {"event": f"process_{state}", "seconds": round(now - since, 1)}
                signals.append(self.signal(now, "kernel", job=job, rank=rank, process=pid, data=data))
        return signals

    def _oom_file(self, cgroup: str) -> str:
        group = cgroup.partition("0::")[2].splitlines()
        return f"{self.place.section.sysfs_root}/fs/cgroup{group[0]}/memory.events" if group else ""


def _oom_kills(path: str) -> int:
    for line in (read_text(path) or "").splitlines() if path else ():
        name, _, number = line.partition(" ")
        if name == "oom_kill" and number.isdecimal():
            return int(number)
    return 0
