"""From a confirmed incident to orders: spares, the fence, limits and brakes, amended recoveries, and jobs that loop.

A recovery belongs to a job's attempt. A second fault before the job steps again amends it: one restart with all slots that
were replaced so far, under a larger fence, so that the order given before is void.
"""

from typing import Any

from detectors.core.brake import MassBrake
from detectors.core.identity import short_hash
from detectors.core.incident import OPEN, Incident, State
from detectors.core.policy import DRASTIC, Guard
from detectors.core.response import POISONED, Place, Planned, Spares, kept, recalled, suffering, taken_out, wanted
from detectors.core.safety import Loop, Safety
from detectors.core.types import Action, OperatorEvent
from detectors.core.world import JobState, World
from outrider.config.policy import Policy
from outrider.fleet import Fleet

#: How the refusal of a drain begins that follows by itself once a spare is free.
NO_SPARE = "limit: no spare is left"
#: Orders about one node that its release waits for: the newest.
AFTER_MAX = 8


class Recovery:
    """Turns incidents into actions.

    Args:
        fleet: spares and size.
        policy: limits, deadlines, brakes.
        world: jobs and slots.
        fence: the last fencing number used.
    """

    def __init__(self, fleet: Fleet, policy: Policy, world: World, fence: int) -> None:
        self.policy, self.world, self.fence = policy, world, fence
        self.safety = Safety.make(fleet, policy)
        self.guard = Guard(policy, domains=self.safety.domains)
        self.spares = Spares(fleet.spares)
        self.brake = MassBrake(policy, len(fleet.nodes))
        self.actions: dict[str, Action] = {}
        #: Nodes taken out -> incident that did it.
        self.quarantined: dict[str, str] = {}
        #: job -> (attempt, slots replaced so far).
        self.replaced: dict[str, tuple[int, list[dict[str, Any]]]] = {}
        self.loops: dict[str, Loop] = {}
        #: Incidents whose actions a brake holds back; tried again when it lets go.
        self.held: list[str] = []

    # --- orders ---

    def act(self, incident: Incident, doubted: set[str], now: float) -> list[Action]:
        """The actions of an incident, or their recorded refusals. `doubted`: nodes of other open incidents."""
        self.guard.hold_until = max(self.guard.hold_until, self.brake.weigh(incident, now))
        unfit = self._unfit(incident, doubted, now)
        claims_before = dict(self.spares.claimed)
        places = self._places(incident, unfit) if incident.response == "restart" else {}
        served = {job for job, place in places.items() if self._ordered(incident, job, place)}
        plan = wanted(incident, self.world, places, served)
        if not plan:
            return []
        out: list[Action] = []
        after: tuple[str, ...] = ()
        for item in plan:
            if item.action in DRASTIC or item.action == "snapshot":
                # One number each: what a rank still writes under the snapshot's must be old once the next attempt runs.
                self.fence += 1
            incident.fence = self.fence
            action = self._order(incident, item, after, now)
            out.append(action)
            if action.refused is None:
                incident.actions.append(action.decision_id)
                self.actions[action.decision_id] = action
                if item.action != "page":
                    after = (*after, action.decision_id)
                self._note(incident, item, now)
        self._settle(incident, out, claims_before, now)
        return out

    def fit(self, incident: Incident, doubted: set[str], now: float) -> None:
        """Makes a lost domain's response what the spares allow: it is replaced as a whole, or a person is told.

        A job that misses some of its slots would only wait again.
        """
        waited = incident.extra.pop("short_of_spares", None) is not None
        if incident.fault != "domain.lost" or not incident.extra.get("members"):
            return
        if waited:
            incident.response = incident.asked
        if incident.response == "restart" and (lack := self.short(incident, doubted, now)) is not None:
            need, free = lack
            incident.response = "page"
            incident.extra["short_of_spares"] = f"limit: {need} nodes to replace, {free} spares"
            incident.explanation += f"; {need} nodes would have to be replaced, and {free} spares are free"

    def short(self, incident: Incident, doubted: set[str], now: float, leaving: int = 0) -> tuple[int, int] | None:
        """How many spares an incident needs and how many are free, if these are too few: one for each node of a lost domain, or
        one for a node that is to be drained beside the `leaving` ones that were told to leave before it."""
        free = len(self._free(self._unfit(incident, doubted, now)))
        under_way = {item["from"] for name in incident.jobs for item in self.replaced.get(name, (0, []))[1]}
        need = sum(node not in under_way for node in incident.extra.get("members", ())) or 1 + leaving
        return (need, free) if need > free else None

    def _free(self, unfit: set[str]) -> list[str]:
        """Spares that may take a slot, best first: neither claimed nor unfit, and no job runs there."""
        names = [name for name in self.spares.names if name not in self.spares.claimed and name not in unfit]
        return [name for name in names if not self.world.jobs_on(name)]

    def _unfit(self, incident: Incident, doubted: set[str], now: float) -> set[str]:
        """Nodes that may take no slot now."""
        return doubted | set(self.quarantined) | set(incident.nodes) | self.safety.unfit(now)

    def _order(self, incident: Incident, item: Planned, after: tuple[str, ...], now: float) -> Action:
        nodes = [*incident.nodes, *item.nodes]
        refused = self.guard.refuses(item.action, incident=incident.id, fault=incident.fault, jobs=item.jobs, nodes=nodes, now=now)
        if refused is None and item.action in DRASTIC:
            refused = incident.extra.get("short_of_spares")
        if refused is None and item.action == "drain" and item.jobs and self._spares_gone(now):
            refused = f"{NO_SPARE}, and {item.target['node']} still works"
        if (refused or "").startswith("mode advise") and incident.id in self.safety.approvals.expired:
            refused = "approval: nobody answered in time"
        snapshot = item.action == "snapshot"
        deadline = self.policy.snapshot_deadline_seconds if snapshot else self.policy.action_deadline_seconds
        return Action(
            t=now, decision_id=short_hash(incident.id, item.action, sorted(item.target.items(), key=str), self.fence),
            incident=incident.id, action=item.action, target=item.target, fence=incident.fence, deadline_seconds=deadline,
            after=after, reason=self._reason(incident, item, now), refused=refused, dry_run=refused is not None,
        )  # fmt: skip

    def _reason(self, incident: Incident, item: Planned, now: float) -> str:
        """Why; for a node that is taken out again, also how often that makes it."""
        if item.action not in ("quarantine", "drain"):
            return incident.explanation
        node = str(item.target["node"])
        times = self.safety.offenders.often(node, now) + (self.quarantined.get(node) != incident.id)
        return f"{incident.explanation}; taken out {times} times of late" if times > 1 else incident.explanation

    def _spares_gone(self, now: float) -> bool:
        """Whether the site has spares, and every one is taken or unfit."""
        unfit = self.safety.unfit(now) | set(self.quarantined)
        return self.policy.drain_needs_spare and bool(self.spares.names) and not self._free(unfit)

    def _note(self, incident: Incident, item: Planned, now: float) -> None:
        if item.action in ("quarantine", "drain"):
            node = str(item.target["node"])
            if self.quarantined.get(node) != incident.id:  # ordered anew by an amended recovery: one and the same time
                self.safety.offenders.note(node, now)
        if item.action == "quarantine":
            self.quarantined[item.target["node"]] = incident.id
        elif item.action == "restart":
            self.replaced[item.target["job"]] = (item.target["attempt"], item.target["replace"])
            incident.restarted[item.target["job"]] = item.target["attempt"]

    def _ordered(self, incident: Incident, job: str, place: Place) -> bool:
        """Whether this incident ordered that very restart already: what is asked for now is what was refused beside it."""
        attempt = self.world.jobs[job].attempt
        return incident.restarted.get(job) == attempt and self.replaced.get(job) == (attempt, place.replace)

    def _settle(self, incident: Incident, out: list[Action], claims_before: dict[str, str], now: float) -> None:
        restarts = [action for action in out if action.action == "restart" and action.refused is None]
        used = {item["to"] for action in restarts for item in action.target["replace"]}
        self.spares.claimed = {name: by for name, by in self.spares.claimed.items() if name in claims_before or name in used}
        if any(action.refused is None and action.action in DRASTIC for action in out):
            self.guard.count(sorted(action.target["job"] for action in restarts), incident.nodes, now)
        waits = [action.refused for action in out if action.action == "drain" and (action.refused or "").startswith(NO_SPARE)]
        if waits:
            incident.extra["short_of_spares"] = waits[0]
        if any((action.refused or "").startswith("mode advise") for action in out):
            self.safety.approvals.ask(incident.id, now)
        if any((action.refused or "").startswith("brake") for action in out) and incident.id not in self.held:
            self.held.append(incident.id)
        incident.held_back = any(action.refused is not None for action in out)
        if incident.state is State.CONFIRMED:
            incident.move(State.ACTING, now)

    # --- where a job goes on ---

    def _places(self, incident: Incident, unfit: set[str]) -> dict[str, Place]:
        places = {}
        taken: dict[str, str | None] = {}
        for state in suffering(incident, self.world):
            loop = self.loops.setdefault(state.name, Loop())
            if loop.attempt != state.attempt:  # a second fault of one attempt amends, it is no second failure
                loop.attempt, loop.failures = state.attempt, loop.failures + 1
            limit = self.policy.crash_loop_attempts
            if limit and loop.failures > limit + 1:
                incident.extra["crash_loop"] = {"job": state.name, "failures": loop.failures, "committed": loop.committed}
                continue
            rule = "previous" if limit and loop.failures > limit else "newest"
            if incident.fault in POISONED:
                rule = "last_good"
            places[state.name] = Place(self._replace(incident, state, unfit, taken), rule)
        return places

    def _replace(self, incident: Incident, state: JobState, unfit: set[str], taken: dict[str, str | None]) -> list[dict[str, Any]]:
        """All slots of this attempt that change hands: those of a recovery under way, and the new ones.

        `taken`: node that is left -> its spare, one for all jobs that shared the node.
        """
        attempt, before = self.replaced.get(state.name, (-1, []))
        replace = [dict(item) for item in before] if attempt == state.attempt else []
        out = set(taken_out(incident))

        def stand_in(node: str, unfit: set[str]) -> str | None:
            if node not in taken:
                taken[node] = self.spares.claim(incident.id, self._free(unfit))
            return taken[node]

        for item in replace:
            if item["to"] in unfit:  # the stand-in itself is lost: another one takes its place
                item["to"] = stand_in(item["to"], unfit)
        held = {item["slot"] for item in replace}
        for node in sorted(out):
            slots = [slot for slot in state.node_ranks.get(node, ()) if slot not in held]
            spare = stand_in(node, unfit | out) if slots else None
            replace += [{"slot": slot, "from": node, "to": spare} for slot in slots]
        return replace

    def standing_in(self, node: str) -> list[JobState]:
        """Jobs whose recovery under way gave a slot to `node`."""
        return [
            self.world.jobs[job] for job, (attempt, items) in sorted(self.replaced.items())
            if job in self.world.jobs and self.world.jobs[job].attempt == attempt and any(item["to"] == node for item in items)
        ]  # fmt: skip

    # --- what the world answers ---

    def committed(self, job: str, step: int) -> bool:
        """A snapshot was committed: a job that gets further does not loop. Says whether it was said to loop until now."""
        loop = self.loops.setdefault(job, Loop())
        if step <= loop.committed:
            return False
        failed, loop.committed, loop.failures = loop.failures > 0, step, 0
        return failed

    def forget(self, job: str) -> bool:
        """A job is over, and one that begins under its name is another. Says whether anything was known of it."""
        return (self.loops.pop(job, None), self.replaced.pop(job, None)) != (None, None)

    def unfit_spare(self, incident: Incident, action: Action) -> bool:
        """A restart failed because a spare did not pass its check: those spares are set aside. Says whether to try again."""
        names = {str(item["to"]) for item in action.target.get("replace", ()) if item.get("to")}
        self.safety.unfit_spares |= dict.fromkeys(sorted(names))
        for name in names:
            self.spares.claimed.pop(name, None)
        return bool(names) and incident.state in OPEN

    def release(self, event: OperatorEvent, incidents: dict[str, Incident], now: float) -> Action:
        """A person gives a node back: whoever took it out of service is told, once that has been told of the taking out."""
        node = event.target
        incident = self.quarantined.pop(node, "")
        incident = incident or next((one.id for one in reversed(incidents.values()) if node in one.nodes), "")
        self.safety.unfit_spares.pop(node, None)
        if not self.standing_in(node):  # a recovery under way is putting a job there
            self.spares.claimed.pop(node, None)
        taken = (one.decision_id for one in self.actions.values() if one.action in ("quarantine", "drain"))
        after = tuple(name for name in taken if self.actions[name].target.get("node") == node)[-AFTER_MAX:]
        self.fence += 1
        return Action(
            t=now, decision_id=short_hash("release", node, self.fence), incident=incident, action="release", target={"node": node},
            fence=self.fence, deadline_seconds=self.policy.action_deadline_seconds, after=after,
            reason=f"given back by {event.who}" + (f": {event.reason}" if event.reason else ""),
        )  # fmt: skip

    # --- brakes ---

    def let_go(self, incidents: dict[str, Incident], now: float) -> list[Incident]:
        """Incidents whose held actions may be tried again now."""
        if now < self.guard.hold_until or self.guard.blind:
            return []
        held, self.held = self.held, []
        return [incidents[one] for one in held if one in incidents and incidents[one].state in OPEN]

    # --- the next leader ---

    def snapshot(self) -> dict[str, Any]:
        """State for the next leader, in a form that JSON can carry."""
        return {
            "fence": self.fence, "claimed": dict(self.spares.claimed), "quarantined": dict(self.quarantined),
            "replaced": {job: [attempt, items] for job, (attempt, items) in self.replaced.items()},
            "loops": {job: [loop.committed, loop.failures, loop.attempt] for job, loop in self.loops.items()},
            "held": list(self.held), "lost": list(self.brake.lost), "counted": list(self.brake.counted),
            "guard": self.guard.snapshot(), "safety": self.safety.snapshot(), "actions": list(map(kept, self.actions.values())),
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        """Goes on where `snapshot` was taken. The fence never goes back."""
        self.fence = max(self.fence, int(state["fence"]))
        self.spares.claimed, self.quarantined = dict(state["claimed"]), dict(state["quarantined"])
        self.replaced = {job: (int(attempt), list(items)) for job, (attempt, items) in state["replaced"].items()}
        self.loops = {job: Loop(*map(int, numbers)) for job, numbers in state["loops"].items()}
        self.held, self.brake.lost = list(state["held"]), list(state["lost"])
        self.brake.counted = dict.fromkeys(state["counted"])
        self.safety.restore(state["safety"])
        self.guard.restore(state["guard"])
        self.actions = {one[0]: recalled(*one) for one in state.get("actions", ())}
