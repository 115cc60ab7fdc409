"""Which rank held up a collective: those that print a time-out waited; the one that never came is the odd one."""

import re
from collections import Counter, defaultdict
from typing import Any, Final, cast

from detectors.inspect.context import Context
from detectors.inspect.findings import EvidenceLine, Finding, finding
from detectors.inspect.train_log.reading import last_lines
from detectors.inspect.train_log.story import Episode, Story, Told
from outrider.catalogue import Culprit, Repair

#: More suspects than this share of the ranks are no odd ones.
SUSPECTS_SHARE_MAX: Final = 0.34
#: What a rank's own lines say about why it did not come: words -> (fault, culprit, repair, why). First that fits.
_WHY: Final[tuple[tuple[re.Pattern[str], str, Culprit, Repair, str], ...]] = tuple(
    (re.compile(words, re.IGNORECASE), fault, cast(Culprit, culprit), cast(Repair, repair), why)
    for words, fault, culprit, repair, why in (
        (
            r"\b(?:data ?)?loader\b|\bprefetch|\bdataset\b|\bshard\b|\bbatch\b.{0,40}\b(?:not ready|wait|block|missing|late)",
            *("job.dataloader_stall", "data", "fix_data", "its data loader does not deliver"),
        ),
        (r"\bcheckpoint|\bckpt\b|\bsnapshot\b|\bfsync", "storage.hang", "storage", "fix_storage", "it is still writing a snapshot"),
        (
            r"\bnfs\b|\blustre\b|\bmount\b|read timed out|\bi/o\b",
            "storage.hang",
            "storage",
            "fix_storage",
            "its storage does not answer",
        ),
        (r"compil|inductor|triton|autotun|cache miss", "job.hang", "app", "fix_app", "it is still compiling"),
        (r"\beval|\bvalidat|\bgenerat(?:e|ing)", "job.hang", "app", "fix_app", "it is in another part of the program"),
        (
            r"\bnvml\b|\bxid\b|\becc\b|\bcuda\w* (?:error|hang|stuck|retry|block)|\bgpu\b.{0,40}(?:hang|hung|stuck|lost|not "
            r"respond)",
            *("gpu.driver_hang", "gpu", "reboot_node", "its GPU or driver does not answer"),
        ),
        (r"\bgarbage\b|\bgc\b", "job.hang", "app", "fix_app", "it collects garbage"),
        (
            r"\b(?:waiting|blocked|retry\w*)\b.{0,60}\b(?:lock|http|socket|service|wandb|upload)",
            "job.hang",
            "app",
            "fix_app",
            "it waits for something else",
        ),
    )
)
_TIMEOUTS: Final = (
    "watchdog_timeout",
    "watchdog_status",
    "dump_signal",
    "desync_timeout",
    "watchdog_blocking_wait",
    "gloo_timeout",
    "barrier_timeout",
)


def judge_hang(episode: Episode, story: Story, context: Context) -> Finding | None:
    """The finding about a collective that did not end; None if nothing timed out."""
    waits = episode.of(*_TIMEOUTS)
    named = episode.of("desync_missing", "desync_never", "desync_unfinished", "barrier_missing", "collective_mismatch")
    stuck = episode.of("section_timeout", "watchdog_stuck", "gil_hang", "elastic_stuck", "monitor_timeout")
    if not waits and not named and not stuck:
        return None
    if mismatch := _mismatch(episode, waits, context):
        return mismatch
    suspects, how = _suspects(episode, waits, named, stuck, story, context)
    evidence = [one.evidence() for one in named[:4]] + [one.evidence() for one in waits[:6]]
    if not suspects:
        return _nobody(waits, evidence, context)
    said = [*_last_words(suspects, story), *episode.told, *episode.life]
    own = [one.evidence() for one in said if one.record.rank in suspects and one.what not in _TIMEOUTS]
    if _reason(own) is None and waits:
        own += last_lines(story, suspects[0], waits[0])
    return _blame(suspects, how, evidence, own, context)


def _reason(own: list[EvidenceLine]) -> tuple[str, Culprit, Repair, str] | None:
    """What a rank's own lines say about why it did not come; its last words count most."""
    for line in reversed(own):
        for words, fault, culprit, repair, why in _WHY:
            if words.search(line.text):
                return fault, culprit, repair, why
    return None


def _last_words(suspects: list[int], story: Story) -> list[Told]:
    """The last thing each suspect said it was at before the trouble, unless it said that it was done with it."""
    last = {one.record.rank: one for one in story.life if one.record.rank in suspects}
    return [one for one in last.values() if one.what not in ("saved", "resumed", "attempt", "fresh_start")]


def _suspects(
    episode: Episode, waits: list[Told], named: list[Told], stuck: list[Told], story: Story, context: Context
) -> tuple[list[int], str]:
    """The odd ranks and how they are known, the surest source first."""
    for kinds, how in (
        (("desync_missing", "barrier_missing", "desync_never"), "the desync report names it as the one that did not join"),
        (("desync_unfinished",), "the desync report names it as the one that did not finish"),
    ):
        ranks = sorted({rank for one in named if one.what in kinds for rank in one.data["ranks"]})
        if ranks and _few(ranks, story, context):
            return ranks, how
    if behind := _behind(waits):
        return behind, "it enqueued less than the others, which wait for it"
    own = sorted({one.record.rank for one in stuck if one.record.rank is not None})
    if own and _few(own, story, context):
        return own, "its own watchdog says that it is stuck"
    slow = sorted({one.record.rank for one in episode.of("loader_stall") if one.record.rank is not None})
    waiting = {one.record.rank for one in waits}
    if slow and (len(slow) <= 2 or (waiting and not waiting & set(slow))):
        return slow, "its own lines say that it waits for data"
    absent = _absent(waits, context)
    return absent, "it alone printed no time-out"


def _few(ranks: list[int], story: Story, context: Context) -> bool:
    known = max(len(context.ranks), len(story.ranks_heard), 4)
    return len(ranks) <= max(1, known * SUSPECTS_SHARE_MAX)


def _behind(waits: list[Told]) -> list[int]:
    """Ranks whose last enqueued collective is older than one that others wait for, in the group where that began.

    Counts of different groups cannot be compared; a group told by none of them is the default group's.
    """
    enqueued: dict[Any, dict[int, int]] = defaultdict(dict)
    waited: dict[Any, int] = {}
    for one in waits:
        rank, group = one.record.rank, _group(one)
        if rank is not None and one.data.get("enqueued") is not None:
            enqueued[group][rank] = max(one.data["enqueued"], enqueued[group].get(rank, -1))
        if isinstance(one.data.get("seq"), int):
            waited[group] = max(one.data["seq"], waited.get(group, -1))
    best: list[int] = []
    for group, ranks in enqueued.items():
        low, high = min(ranks.values()), max(ranks.values())
        limit = waited.get(group)
        behind = sorted(rank for rank, value in ranks.items() if value == low)
        never_joined = low < limit if limit is not None else low < high
        if low < high and never_joined and len(behind) * 2 <= len(ranks) and (not best or len(behind) < len(best)):
            best = behind
    return best


def _group(one: Told) -> str:
    group = one.data.get("group")
    return "0" if group in (None, "0", "default_pg", "0_default_pg") or one.data.get("desc") == "default_pg" else str(group)


def _absent(waits: list[Told], context: Context) -> list[int]:
    """Ranks of the context that said nothing where all others printed a time-out: one rank, or all of one node."""
    printed = {one.record.rank for one in waits if one.record.rank is not None}
    absent = sorted(set(context.ranks) - printed)
    if not absent or len(printed) < len(context.ranks) * 0.6:
        return []
    return absent if len(absent) == 1 or len({context.ranks[rank][0] for rank in absent}) == 1 else []


def _mismatch(episode: Episode, waits: list[Told], context: Context) -> Finding | None:
    """Ranks of one group that wait in different operations under one number called different collectives."""
    said = episode.of("collective_mismatch")
    calls: dict[tuple[str, Any], dict[tuple[Any, Any], list[Told]]] = defaultdict(lambda: defaultdict(list))
    for one in waits:
        if one.what == "watchdog_timeout" and one.data.get("op"):
            calls[_group(one), one.data.get("seq")][one.data["op"], one.data.get("numel_in")].append(one)
    for (_, seq), kinds in sorted(calls.items(), key=str):
        operations = {op for op, _ in kinds}
        if len(operations) > 1 or (len(kinds) > 1 and operations & {"ALLREDUCE", "BROADCAST", "REDUCE"}):
            odd = min(kinds.values(), key=len)
            ranks = sorted({one.record.rank for one in odd if one.record.rank is not None})
            subject = context.rank_subject(ranks[0]) if len(ranks) == 1 else {"job": context.job_name}
            lines = [one.evidence() for group in kinds.values() for one in group[:2]]
            return finding(
                "job.desync",
                subject,
                f"At collective {seq} the ranks called different operations or sizes: the program's order differs.",
                evidence=lines,
                response="page",
            )
    if said:
        rank = next((one.record.rank for one in said if one.record.rank is not None), None)
        subject = context.rank_subject(rank) if rank is not None else {"job": context.job_name}
        return finding(
            "job.desync",
            subject,
            "Ranks called different collectives: the program's order differs.",
            evidence=[one.evidence() for one in said],
            response="page",
        )
    return None


def _nobody(waits: list[Told], evidence: list[EvidenceLine], context: Context) -> Finding:
    operations = Counter(one.data["op"] for one in waits if one.data.get("op"))
    inside = f" in {operations.most_common(1)[0][0]}" if operations else ""
    return finding(
        "job.hang",
        {"job": context.job_name},
        f"Ranks waited{inside} until the time-out, and none is seen to be behind: all joined, so transport or a GPU, or the "
        f"odd rank's log is missing.",
        evidence=evidence,
        next_steps=(
            "Fetch the flight-recorder dumps of all ranks and inspect them together.",
            "Look for the rank whose log ends first.",
        ),
    )


def _blame(suspects: list[int], how: str, evidence: list[EvidenceLine], own: list[EvidenceLine], context: Context) -> Finding:
    """A finding about the odd ranks, with the reason that their own lines give."""
    nodes = {context.ranks[rank][0] for rank in suspects if rank in context.ranks}
    subject = context.rank_subject(suspects[0]) if len(suspects) == 1 else {"job": context.job_name, "rank": suspects[0]}
    if len(suspects) > 1 and len(nodes) == 1:
        subject["node"] = next(iter(nodes))
    who = f"Rank {suspects[0]}" if len(suspects) == 1 else f"Ranks {', '.join(map(str, suspects[:8]))}"
    lines = own[:6] + evidence
    if (reason := _reason(own)) is not None:
        fault, culprit, repair, why = reason
        if culprit == "data" and len(nodes) > 1:  # loaders of several machines: what they share is the storage
            culprit, repair = "storage", "fix_storage"
        return finding(
            fault,
            subject,
            f"{who} held up the collective ({how}): {why}. The ranks that printed the time-out only waited.",
            evidence=lines,
            culprit=culprit,
            response="restart",
            repair=repair,
            layers=("communication", "application"),
        )
    return finding(
        "job.hang",
        subject,
        f"{who} held up the collective ({how}); why is not in this log: its host or its code, not the network.",
        evidence=lines,
        culprit="node",
        response="restart",
        layers=("communication",),
        next_steps=("Take that rank's stack (py-spy) and its host's kernel log.",),
    )
