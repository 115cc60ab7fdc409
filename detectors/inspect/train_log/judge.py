"""Judges a training log: one finding an incident, whatever number of ranks tells of it.

For each episode of trouble, in this order: was the stop asked for; does the kernel name a broken part; did the library survive
it; does
a rank name a cause; did a collective wait for an odd rank; did the transport break. Numbers (loss, NaN) are judged beside it.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from detectors.inspect.context import Context
from detectors.inspect.findings import Finding, finding
from detectors.inspect.sources import Source
from detectors.inspect.train_log.cause_findings import judge_cause
from detectors.inspect.train_log.causes import first_cause, is_crash, place, tier
from detectors.inspect.train_log.hang import judge_hang
from detectors.inspect.train_log.kernel import kernel_findings
from detectors.inspect.train_log.network import KINDS as NETWORK_KINDS
from detectors.inspect.train_log.network import complaints, judge_network, judge_recovered
from detectors.inspect.train_log.numeric import judge_numbers
from detectors.inspect.train_log.plan import is_before, judge_plan
from detectors.inspect.train_log.reading import read_story
from detectors.inspect.train_log.roots import LATE_SECONDS, is_root
from detectors.inspect.train_log.story import PLANS, Episode, Story, Told
from outrider.catalogue import RESPONSES

#: Culprits that are parts of machines: what they break is explained by them, whatever else was going on.
_PARTS: Final = frozenset({"gpu", "node", "link", "nic", "switch"})
#: A process that the kernel names.
_PID: Final = re.compile(r"(?:Killed process |task \S{1,40}?:|pid=)(\d{1,9})")
_WAITS: Final = frozenset(
    {"watchdog_timeout", "watchdog_status", "watchdog_blocking_wait", "desync_timeout", "gloo_timeout", "barrier_timeout"}
)
_HARD_NETWORK: Final = frozenset({"ib_completion", "peer_closed", "peer_reset", "gloo_closed"})
#: Tells a stall from a slow batch when nothing else is wrong: seconds that a loader keeps its job waiting.
STALL_SECONDS: Final = 120.0


def judge(sources: Sequence[Source], context: Context) -> list[Finding]:
    """The findings of one job's logs."""
    story = read_story(sources)
    numeric = judge_numbers(story, context)
    kernel = kernel_findings(story, context)
    loud = [one for one in kernel if one.height >= RESPONSES.index("page")]
    hardware = [one for one in loud if one.culprit in _PARTS]
    host = [one for one in loud if one not in hardware]
    # A fault of the program that the kernel saw needs nobody by itself; where it ended the job it does.
    quiet = [replace(one, response="page") for one in kernel if one.response == "watch" and one.fault == "job.app_error"]
    explained: list[Episode] = []
    found: list[Finding] = []
    for episode in story.episodes:
        trouble = [one for one in episode.told if _is_trouble(one)]
        if hardware and not _went_on(episode):
            explained.append(episode)
        elif (one := _judge_episode(episode, trouble, story, context, host or quiet)) is not None:
            found.append(one)
    found += [_with_victims(one, explained, story, context) for one in hardware]
    if not story.episodes:
        found += [one for one in kernel if one not in hardware]
    return _one_story(_joined(_without_echo(found, numeric) + numeric))


def _went_on(episode: Episode) -> bool:
    """The job stepped on after the trouble, in the same attempt."""
    return episode.recovered and not episode.restarted


def _judge_episode(episode: Episode, trouble: list[Told], story: Story, context: Context, host: list[Finding]) -> Finding | None:
    causes = [one for one in trouble if tier(one) > 0]
    if planned := judge_plan(episode, causes, trouble, story, context):
        unsaved = [one for one in causes if _is_unsaved(one)]
        return judge_cause(first_cause(unsaved), episode, story, context) if unsaved else planned
    if not trouble:
        return None
    if _went_on(episode):
        return _survived(episode, trouble, story, context)
    if host:
        return _with_victims(max(host, key=lambda one: one.height), [episode], story, context)
    return _judge_failure(episode, trouble, causes, story, context)


def _is_unsaved(one: Told) -> bool:
    """A snapshot that could not be written: an order to stop excuses much, but not the loss of the last state."""
    full = any(word in str(one.data.get("errno")) for word in ("space left", "quota"))
    return one.what == "checkpoint_failed" or (one.what in ("storage_error", "exception") and full)


def _is_trouble(one: Told) -> bool:
    """Signs of failure; orders to stop, and ports that come back, are none."""
    if one.what in PLANS:
        return one.data.get("kind") in ("node_failure", "oom")
    if one.what == "exception" and one.data.get("kind") == "user":
        return False
    if one.what == "ib_async":
        return "active" not in str(one.data.get("event"))
    return one.what not in (
        "stepd_terminated",
        "launcher_end",
        "elastic_restart",
        "elastic_membership",
        "elastic_root",
        "elastic_closing",
    )


def _survived(episode: Episode, trouble: list[Told], story: Story, context: Context) -> Finding | None:
    """The job went on in the same attempt: the link may need a look, all else is recorded."""
    network = judge_recovered(episode, story, context)
    if network:
        return network[0]
    causes = [one for one in trouble if tier(one) > 1]
    if not causes:
        return None
    told = judge_cause(first_cause(causes), episode, story, context)
    worth_a_page = told.fault in ("storage.full", "job.snapshot_failed")
    return replace(
        told,
        response="page" if worth_a_page else "watch",
        state="resolved",
        explanation=f"{told.explanation} The job went on all the same.",
    )


def _judge_failure(episode: Episode, trouble: list[Told], causes: list[Told], story: Story, context: Context) -> Finding | None:
    waits = [one for one in trouble if one.what in _WAITS]
    sure = [one for one in causes if tier(one) == 2]
    told = [one for one in causes if tier(one) == 2 or is_crash(one)]
    roots = [one for one in told if is_root(one, waits, episode, story, context)]
    network = [one for one in trouble if one.what in _HARD_NETWORK]
    if roots:
        cause = first_cause(roots)
        if not network or is_before(cause, network[0]) or _is_blamed(cause, network[0], episode, story, context):
            return judge_cause(cause, episode, story, context)
        later = [one for one in roots if _is_blamed(one, network[0], episode, story, context)]
        if later:
            return judge_cause(first_cause(later), episode, story, context)
    hang = judge_hang(episode, story, context)
    transport = judge_network(episode, story, context) if any(one.what in NETWORK_KINDS for one in trouble) else None
    broken = transport is not None and transport.fault not in ("job.rank_exit", "node.lost")
    if hang is not None and not (broken and hang.fault == "job.hang" and hang.culprit == "none"):
        return hang
    if transport is not None and (broken or not sure):
        return transport
    if sure or causes:
        return judge_cause(first_cause(sure or causes), episode, story, context)
    if transport is not None:
        return transport
    return _stall(episode, story, context) or _teardown_only(trouble, context)


def _is_blamed(cause: Told, first: Told, episode: Episode, story: Story, context: Context) -> bool:
    """The cause stands on the node that the others complain about, and was only printed late."""
    where = place(cause, episode, story, context).get("node")
    if where is None or (cause.own is not None and first.own is not None and cause.own - first.own > LATE_SECONDS):
        return False
    said = [one for one in complaints(episode, story, context) if one.remote]
    return bool(said) and sum(one.remote == where for one in said) * 2 > len(said)


def _with_victims(broken: Finding, episodes: list[Episode], story: Story, context: Context) -> Finding:
    """What the kernel says is broken explains what the ranks print; they may know which rank it hit."""
    if not episodes:
        return broken
    subject = dict(broken.subject)
    if context.job_name:
        subject.setdefault("job", context.job_name)
    trouble = [one for episode in episodes for one in episode.told if _is_trouble(one)]
    if "rank" not in subject and (rank := _rank_hit(broken, episodes, story, context)) is not None:
        subject |= {key: value for key, value in context.rank_subject(rank).items() if key not in subject}
    return replace(
        broken,
        subject=subject,
        evidence=broken.evidence + tuple(one.evidence() for one in trouble[:6]),
        layers=tuple(dict.fromkeys((*broken.layers, "application"))),
        explanation=f"{broken.explanation} What the ranks print follows from it.",
    )


def _rank_hit(broken: Finding, episodes: list[Episode], story: Story, context: Context) -> int | None:
    """The rank on the broken node that the others wait for, or whose process the kernel names."""
    node = broken.subject.get("node")
    pids = {int(pid) for line in broken.evidence for pid in _PID.findall(line.text)}
    for episode in episodes:
        for one in episode.told:
            if one.record.pid in pids and one.what == "elastic_exit":
                where = place(one, episode, story, context)
                rank = where.get("rank")
                if rank is None and one.record.local_rank is not None:
                    rank = context.rank_at(node, one.record.local_rank)
                if isinstance(rank, int):
                    return rank
        hang = judge_hang(episode, story, context)
        if hang is not None and node is not None and hang.subject.get("node") == node and isinstance(hang.subject.get("rank"), int):
            return int(hang.subject["rank"])
    return None


def _stall(episode: Episode, story: Story, context: Context) -> Finding | None:
    """Loaders that keep the job waiting, and no other sign."""
    stalls = episode.of("loader_stall")
    if not stalls or max(one.data["seconds"] for one in stalls) < STALL_SECONDS:
        return None
    ranks = sorted({one.record.rank for one in stalls if one.record.rank is not None})
    subject = context.rank_subject(ranks[0]) if len(ranks) == 1 else {"job": context.job_name}
    nodes = {context.ranks[rank][0] for rank in ranks if rank in context.ranks}
    several = len(ranks) > 1 and len(nodes) != 1
    return finding(
        "job.dataloader_stall",
        subject,
        "Data do not arrive" + (" on several nodes: what they share is the storage." if several else " at this rank."),
        evidence=[one.evidence() for one in stalls],
        culprit="storage" if several else "data",
        repair="fix_storage" if several else "fix_data",
    )


def _teardown_only(trouble: list[Told], context: Context) -> Finding | None:
    """Only consequences are in the log."""
    fatal = [
        one
        for one in trouble
        if one.what
        in (
            "teardown",
            "nccl_error",
            "store_lost",
            "store_unreachable",
            "init_store_error",
            "exception",
            "monitor_timeout",
            "abort",
        )
    ]
    if not fatal:
        return None
    first = fatal[0]
    store = first.what in ("store_lost", "store_unreachable", "init_store_error", "store_timeout")
    subject = context.rank_subject(0) if store else {"job": context.job_name}
    return finding(
        "job.rank_exit",
        subject,
        "The job broke down, but only consequences are in this log"
        + (": the first line says that the store's host (rank 0) is gone." if store else "."),
        evidence=[one.evidence() for one in fatal[:8]],
        culprit="node" if store else "none",
        repair="investigate",
        layers=("communication",),
        decisive=False,
        next_steps=("Get the logs of the other ranks, the earliest first.",),
    )


def _without_echo(found: list[Finding], numeric: list[Finding]) -> list[Finding]:
    """A crash on NaN is the NaN's incident."""
    if any(one.fault in ("job.loss_nan", "gpu.sdc") and one.height >= 2 for one in numeric):
        return [one for one in found if one.fault not in ("job.loss_nan", "job.app_error", "job.hang", "job.rank_exit")]
    return found


def _one_story(found: list[Finding]) -> list[Finding]:
    """Where something needs a person, what healed beside it is no incident of its own."""
    loud = any(one.height >= RESPONSES.index("page") for one in found)
    return [
        one for one in found if not (loud and one.response == "watch" and (one.state == "resolved" or one.fault.startswith("job")))
    ]


def _joined(found: list[Finding]) -> list[Finding]:
    """One finding for one fault of one subject, however many episodes it made."""
    joined: dict[tuple[str, str, str], Finding] = {}
    for one in found:
        key = (one.fault, one.culprit, repr(sorted(one.subject.items(), key=str)))
        before = joined.get(key)
        if before is None:
            joined[key] = one
        elif one.height > before.height or (one.height == before.height and one.state == "open"):
            joined[key] = replace(one, evidence=before.evidence + one.evidence)
        else:
            joined[key] = replace(before, evidence=before.evidence + one.evidence)
    return list(joined.values())
