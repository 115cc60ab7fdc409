"""From what the processes left behind to the figures of one fault: pure reckoning on records, events and incidents."""

from typing import Any

from drills.drill.faults import Promise
from drills.drill.records import Run
from drills.drill.result import Outcome
from outrider.catalogue import RESPONSES

#: A promise may be missed by this factor on a slow or busy machine before the drill fails; `--strict` allows none.
LENIENCY = 3.0
#: Steps after a restart that must have been compared before "losses equal" means anything.
COMPARED_MIN = 20
#: The in-step cost of everything around a healthy job: median step against the undisturbed run's.
STEP_RATIO_MAX = 1.2

#: Events of the scheduler whose name alone says too little.
_BEGINS = {"attempt": "an attempt begins", "launcher": "launcher started"}
#: How the timeline calls events of a history that do not speak for themselves; a result is said by its action and outcome.
_EVENTS = {
    "action": "orders", "action_result": "", "told": "is told to people",
    "restored": "a rank has loaded its state", "first_step": "a rank has made its first step",
}  # fmt: skip

Event = tuple[float, str, dict[str, Any]]


def measure(outcome: Outcome, promise: Promise, run: Run, baseline: Run, facts: "Facts", strict: bool) -> Outcome:
    """Fills an outcome's figures and lists everything that is not as promised."""
    _incident(outcome, promise, facts)
    _recovery(outcome, promise, run, facts)
    _comparison(outcome, run, baseline)
    _check(outcome, promise, run, baseline, facts, 1.0 if strict else LENIENCY)
    outcome.ok = not outcome.failures
    return outcome


class Facts:
    """What was seen from outside: the fault's moment, the scheduler's events, the incidents, the committed snapshots.

    Args:
        fault_t: monotonic seconds of the fault.
        events: the scheduler's log.
        incidents: the witnesses' pictures, each with its `history`.
        commits: (monotonic seconds, MANIFEST) of every committed snapshot.
        notes: sentences for the report.
    """

    def __init__(self, fault_t: float, events: list[Event], incidents: list[dict[str, Any]],
                 commits: list[tuple[float, dict[str, Any]]], notes: list[str]) -> None:  # fmt: skip
        self.fault_t, self.events, self.incidents, self.commits, self.notes = fault_t, events, incidents, commits, notes

    def first(self, what: str, **data: Any) -> Event | None:
        """The first event of a kind after the fault whose data has these values."""
        for event in self.events:
            if event[0] >= self.fault_t and event[1] == what and all(event[2].get(key) == value for key, value in data.items()):
                return event
        return None

    def count(self, what: str) -> int:
        return sum(event[1] == what for event in self.events if event[0] >= self.fault_t)

    def since(self, moment: float | None) -> float | None:
        return None if moment is None else round(moment - self.fault_t, 3)


def _incident(outcome: Outcome, promise: Promise, facts: Facts) -> None:
    """The incident that the promise names; else the strongest that was confirmed."""
    confirmed = [one for one in facts.incidents if _moment(one, "confirmed") is not None]
    named = [one for one in confirmed if one.get("fault") == promise.incident]
    strongest = sorted(confirmed, key=lambda one: -RESPONSES.index(one.get("response", "ignore")))
    chosen = next(iter(named or strongest), None)
    for one in facts.incidents:
        for line in one.get("history", ()):
            outcome.timeline.append((line.get("t", facts.fault_t) - facts.fault_t, _told(one, line)))
    if chosen is None:
        return
    outcome.incident = {key: value for key, value in chosen.items() if key not in ("history", "audit", "actions")}
    related = [one for one in facts.incidents if one.get("subject") == chosen.get("subject")]
    suspected = [t for one in related or [chosen] for t in (_moment(one, "suspected"), _moment(one, "confirmed")) if t is not None]
    outcome.detect_s = facts.since(min(t for t in suspected if t >= facts.fault_t))
    outcome.confirm_s = facts.since(_moment(chosen, "confirmed"))


def _told(incident: dict[str, Any], line: dict[str, Any]) -> str:
    """One line of an incident's history in words."""
    event = _EVENTS.get(line["event"], line["event"].replace("_", " "))
    words = [str(word) for word in (incident.get("fault"), event, line.get("action"), line.get("outcome")) if word]
    why = line.get("explanation") or line.get("refused") or (line.get("detail") if line.get("outcome") != "done" else None)
    return " ".join(words) + (f": {why}" if why else "")


def _moment(incident: dict[str, Any], event: str) -> float | None:
    return next((line["t"] for line in incident.get("history", ()) if line.get("event") == event), None)


def _recovery(outcome: Outcome, promise: Promise, run: Run, facts: Facts) -> None:
    for t, what, data in facts.events:
        if what == "webhook":
            outcome.actions.append({"type": data["type"], "t": round(t - facts.fault_t, 3), "status": data["status"]} | {
                key: data["data"][key] for key in ("incident", "fault", "job", "node", "replace", "fence") if key in data["data"]
            })  # fmt: skip
        outcome.timeline.append((t - facts.fault_t, sentence(what, data)))
    emergency = [(t, manifest) for t, manifest in facts.commits if str(manifest.get("cause", "")).startswith("emergency")]
    for t, manifest in facts.commits:
        outcome.timeline.append((t - facts.fault_t, f"snapshot of step {manifest['step']} committed ({manifest.get('cause')})"))
    if promise.restarts:
        outcome.snapshot_s = facts.since(emergency[0][0]) if emergency else None
        outcome.load_s = facts.since(run.restored_t)
        outcome.first_step_s = facts.since(run.first_step_t)
        outcome.resumed_step = run.restored_step
        outcome.lost_steps = run.repeated_steps
    if promise.replaced:
        replaced = facts.first("replaced")
        started = facts.first("rank_started", rank=replaced[2]["slot"], attempt=run.attempts) if replaced else None
        outcome.replace_s = facts.since(started[0] if started else None)
    outcome.notes += facts.notes


def sentence(what: str, data: dict[str, Any]) -> str:
    """One event of the scheduler in words."""
    inner = data.get("data", data)
    keys = ("node", "rank", "attempt", "code", "slot", "to", "reason")
    words = [f"{key}={inner[key]}" for key in keys if inner.get(key) is not None]
    return " ".join(["scheduler:", _BEGINS.get(what, what.replace("_", " ")), *([data["type"]] if "type" in data else []), *words])


def _comparison(outcome: Outcome, run: Run, baseline: Run) -> None:
    outcome.losses, outcome.baseline_losses = run.mean_losses(), baseline.mean_losses()
    after = run.steps_after_restart()
    outcome.steps_compared = len(after)
    outcome.loss_equal = bool(after) and all(run.step_facts(step) == baseline.step_facts(step) for step in after)
    outcome.digest_equal = bool(run.digests) and run.digests == baseline.digests
    if outcome.loss_equal is False:
        outcome.failures += run.differences(baseline)[:5]


def _check(outcome: Outcome, promise: Promise, run: Run, baseline: Run, facts: Facts, leniency: float) -> None:
    fail = outcome.failures.append
    restarts = run.attempts - 1
    if restarts != promise.restarts:
        fail(f"the job was restarted {restarts} times, not {promise.restarts}")
    if promise.incident is None:
        for one in facts.incidents:
            if _moment(one, "confirmed") is not None and RESPONSES.index(one.get("response", "ignore")) > RESPONSES.index("watch"):
                fail(f"{one.get('fault')} was confirmed at {one.get('response')}, nothing above watch was to come")
        orders = [action["type"] for action in outcome.actions if action["type"] != "incident.resolved"]
        if orders:
            fail(f"actions were taken: {', '.join(orders)}")
    elif outcome.incident is None or outcome.incident.get("fault") != promise.incident:
        fail(f"{promise.incident} was not confirmed")
    elif promise.confirm_s is not None and outcome.confirm_s is not None:
        low, high = promise.confirm_s
        if not low - 0.05 <= outcome.confirm_s <= high * leniency:
            fail(f"confirmed after {outcome.confirm_s:.2f} s, promised {low:g} to {high:g} s")
    if promise.detect_s is not None and (outcome.detect_s is None or outcome.detect_s > promise.detect_s * leniency):
        fail(f"suspected after {outcome.detect_s} s, promised {promise.detect_s:g} s")
    _check_recovery(outcome, promise, run, facts, fail)
    if not promise.restarts:
        ratio = run.median_step_s() / baseline.median_step_s()
        outcome.notes.append(f"median step {run.median_step_s() * 1e3:.1f} ms, {ratio:.3f} of the undisturbed run's")
        if ratio > STEP_RATIO_MAX * leniency:
            fail(f"median step is {ratio:.2f} of the undisturbed run's, promised at most {STEP_RATIO_MAX:g}")
    if outcome.steps_compared < COMPARED_MIN:
        fail(f"only {outcome.steps_compared} steps could be compared, {COMPARED_MIN} are needed")
    if not outcome.loss_equal:
        fail("losses or samples differ from the undisturbed run's")
    if not outcome.digest_equal:
        fail("parameter digests differ from the undisturbed run's")


def _check_recovery(outcome: Outcome, promise: Promise, run: Run, facts: Facts, fail: Any) -> None:
    if promise.restarts:
        if outcome.snapshot_s is None:
            fail("no emergency snapshot was committed")
        if outcome.lost_steps is None or outcome.lost_steps > 1:
            fail(f"{outcome.lost_steps} finished steps had to be run again, promised at most 1")
        if outcome.first_step_s is None:
            fail("no step followed the restart")
    if promise.replaced:
        quarantined = facts.first("webhook", type="node.quarantine.requested")
        replaced = facts.first("replaced")
        if quarantined is None:
            fail("the node was not quarantined")
        if replaced is None:
            fail("no spare took the slot")
    if promise.agent_back and facts.first("agent_started") is None:
        fail("the agent was not started again")
