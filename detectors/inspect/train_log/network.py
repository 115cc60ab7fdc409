"""Who is behind transport errors: counts complaints against endpoints; the end that most of them share is the culprit."""

from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

from detectors.inspect.context import Context
from detectors.inspect.findings import Finding, finding
from detectors.inspect.train_log.story import Episode, Story, Told
from outrider.parsers.nccl import IB_STATUS

#: Step time this many times the usual after a recovery means that the speed did not come back.
SLOWER_RATIO: Final = 1.15
KINDS: Final = (
    "ib_completion",
    "ib_async",
    "ib_call",
    "peer_closed",
    "peer_reset",
    "peer_connect",
    "gloo_closed",
    "local_peer_died",
)
_NEXT: Final = (
    "Look at both ends of the link: port state, symbol and link-error counters, module temperature.",
    "Reseat or swap cable and module before a part of the machine.",
)


@dataclass(frozen=True, slots=True)
class Complaint:
    """One end says that it cannot reach another. Unknown ends are None; `remote` may be an address that nobody could name."""

    told: Told
    local: str | None
    nic: str | None
    remote: str | None
    remote_nic: str | None
    remote_gid: str | None
    status: int | None


def complaints(episode: Episode, story: Story, context: Context) -> list[Complaint]:
    """All complaints about a peer, with names in place of addresses where they are known."""
    found = []
    for one in episode.of("ib_completion", "peer_closed", "peer_reset", "peer_connect", "ib_call", "gloo_closed"):
        peer, gid = one.data.get("peer"), one.data.get("remote_gid")
        part = next((part for part in context.inventory if gid and part.gid and _same_gid(part.gid, gid)), None)
        remote = (
            (part.node if part else None)
            or (story.node_at(peer, context) if peer else None)
            or (peer.partition("<")[0] if peer else None)
        )
        nic = one.data.get("nic") or _local_nic(one, context)
        found.append(Complaint(one, one.record.node, nic, remote, part.nic if part else None, gid, _status(one)))
    return found


def _status(one: Told) -> int | None:
    """The work completion status; a queue pair that cannot be connected in time says the same as a retry that ran out."""
    if one.what == "ib_call" and "imed out" in str(one.data.get("error")):
        return 12
    return one.data.get("status")


def _same_gid(one: str, other: str) -> bool:
    return one.lower().removeprefix("::ffff:") == other.lower().removeprefix("::ffff:")


def _local_nic(one: Told, context: Context) -> str | None:
    gid = one.data.get("local_gid")
    part = next((part for part in context.inventory if gid and part.gid and _same_gid(part.gid, gid)), None)
    return part.nic if part else None


def judge_recovered(episode: Episode, story: Story, context: Context) -> list[Finding]:
    """Transport errors that the library survived: the link deserves a look, the job no restart."""
    events = episode.of("ib_completion", "ib_async", "ib_recovery", "ib_call", "peer_reset", "peer_closed")
    serious = [one for one in events if one.what in ("ib_completion", "ib_recovery") or _is_bad_event(one)]
    if not serious:
        return []
    slower = story.numbers.slower()
    degraded = slower is not None and slower >= SLOWER_RATIO
    place = _local_place(serious, context)
    speed = (
        f" Steps last {slower:.2f} times as long since."
        if degraded and slower
        else " Steps are as fast as before."
        if slower
        else ""
    )
    down = [one for one in events if _is_bad_event(one)]
    up = [one for one in events if one.what == "ib_async" and "active" in str(one.data.get("event"))]
    return [
        finding(
            "link.errors",
            place | {"job": context.job_name},
            "A transport error was survived: the library went on over what is left." + speed + " A restart would cost more "
            "than it saves.",
            evidence=[one.evidence() for one in events],
            culprit="link",
            response="page" if degraded or not (up or slower) or (down and not up) else "watch",
            state="open" if degraded or (down and not up) else "resolved",
            next_steps=_NEXT,
        )
    ]


def _is_bad_event(one: Told) -> bool:
    return one.what == "ib_async" and any(word in str(one.data.get("event")).lower() for word in ("err", "fatal", "down"))


def _local_place(events: list[Told], context: Context) -> dict[str, Any]:
    """The node, device and port that most lines name on their own side."""
    places = Counter((one.record.node or context.node, one.data.get("nic")) for one in events if one.data.get("nic"))
    if not places:
        nodes = Counter(one.record.node for one in events if one.record.node)
        return {"node": nodes.most_common(1)[0][0]} if nodes else {}
    (node, nic), _ = places.most_common(1)[0]
    port = next((one.data["port"] for one in events if one.data.get("nic") == nic and "port" in one.data), None)
    return {"node": node, "nic": nic, "port": port}


def judge_network(episode: Episode, story: Story, context: Context) -> Finding | None:
    """The transport broke the job: which end? None: nobody complains about the transport itself."""
    said = complaints(episode, story, context)
    hard = [
        one for one in said if one.status is not None and IB_STATUS.get(one.status) and IB_STATUS[one.status].blame != "secondary"
    ]
    events = [one for one in episode.of("ib_async") if _is_bad_event(one)]
    code = [one for one in hard if one.status is not None and IB_STATUS[one.status].blame == "code"]
    if code and len(code) == len(hard):
        return _code_bug(code, context)
    if hard or events:
        return _by_counting(hard, events, context)
    mismatch = episode.of("code_mismatch")
    if mismatch:
        return finding(
            "job.desync",
            {"job": context.job_name},
            "Two ranks called different operations or sizes.",
            evidence=[one.evidence() for one in mismatch],
        )
    return _lost_peer(said, story, context)


def _code_bug(lines: list[Complaint], context: Context) -> Finding:
    status = IB_STATUS[lines[0].status or 0]
    return finding(
        "job.app_error",
        {"job": context.job_name, "node": lines[0].local},
        f"{status.name}: {status.meaning}. That is a bug in memory registration or in the program, not a broken link.",
        evidence=[one.told.evidence() for one in lines],
    )


def _by_counting(hard: list[Complaint], events: list[Told], context: Context) -> Finding:
    """The endpoint common to most complaints wins; a local port event decides between equals."""
    evidence = [one.evidence() for one in events] + [one.told.evidence() for one in hard]
    ports = Counter((one.record.node or context.node, one.data.get("nic")) for one in events if one.data.get("nic"))
    locals_ = Counter((one.local, one.nic) for one in hard)
    remotes = Counter(one.remote for one in hard if one.remote)
    stalled = [one for one in hard if one.status == 13]
    if stalled and len(stalled) * 2 > len(hard) and remotes:
        return _stalled_peer(remotes.most_common(1)[0][0], evidence, context)
    if leaf := _common_leaf(hard, context):
        return finding(
            "switch.down",
            {"switch": leaf, "job": context.job_name},
            f"Ports of several nodes behind {leaf} fail together: the switch.",
            evidence=evidence,
        )
    complainers = {one.local for one in hard}
    if ports:
        (node, nic), _ = ports.most_common(1)[0]
        port = next((one.data.get("port") for one in events if one.data.get("nic") == nic), None)
        place = {"node": node, "nic": nic, "port": port}
        return _nic(place, "Its own port reported an error before the transport gave up.", evidence, context)
    peer, votes = remotes.most_common(1)[0] if remotes else (None, 0)
    if peer and len(complainers) >= 2 and votes * 3 >= 2 * len(hard):
        return _blamed_peer(peer, [one for one in hard if one.remote == peer], evidence, context)
    (node, nic), count = locals_.most_common(1)[0]
    if len(remotes) >= 2 and count * 3 >= 2 * len(hard):
        return _nic(
            {"node": node, "nic": nic}, f"It cannot reach {len(remotes)} different peers, while others can.", evidence, context
        )
    return _nic(
        {"node": node, "nic": nic},
        f"No acknowledgement from {peer or 'its peer'}: the path between the two is broken; one line cannot tell which end.",
        evidence,
        context,
        fault="link.errors",
    )


def _nic(place: dict[str, Any], why: str, evidence: Any, context: Context, fault: str = "nic.down") -> Finding:
    return finding(
        fault,
        {key: value for key, value in place.items() if value is not None} | {"job": context.job_name},
        f"The job lost its transport. {why}",
        evidence=evidence,
        response="restart",
        repair="check_link",
        next_steps=_NEXT,
    )


def _blamed_peer(peer: str, lines: list[Complaint], evidence: Any, context: Context) -> Finding:
    """Many nodes complain about one: all its devices (the node is gone) or one of them."""
    nics = {one.remote_nic or one.remote_gid for one in lines if one.remote_nic or one.remote_gid}
    named = {one.remote_nic for one in lines if one.remote_nic}
    subject = {"node": peer if peer in context.nodes or not _is_address(peer) else None, "job": context.job_name}
    who = len({one.local for one in lines})
    if len(nics) == 1 and len(named) == 1 and len(lines) >= 2:
        return finding(
            "nic.down",
            subject | {"nic": named.pop()},
            f"{who} nodes lost one device of {peer}: its port or cable.",
            evidence=evidence,
            next_steps=_NEXT,
        )
    return finding(
        "node.lost",
        subject,
        f"{who} nodes got no acknowledgement from {peer} any more: that host, not the complainers.",
        evidence=evidence,
        layers=("communication",),
        next_steps=(f"Look at {peer}: power, console, kernel log.",),
    )


def _stalled_peer(peer: str, evidence: Any, context: Context) -> Finding:
    return finding(
        "node.hung",
        {"node": None if _is_address(peer) else peer, "job": context.job_name},
        f"{peer} answers but posts no buffers (receiver not ready): its host or GPU stands still.",
        evidence=evidence,
        layers=("communication",),
    )


def _common_leaf(hard: list[Complaint], context: Context) -> str | None:
    """The leaf switch that all complaining devices share, if they are on several nodes and the site has other leaves."""
    if len({one.local for one in hard}) < 2:
        return None
    leaves = {context.nics.get(one.local or "", {}).get(one.nic or "") for one in hard}
    all_leaves = {leaf for nics in context.nics.values() for leaf in nics.values()}
    remotes = {one.remote for one in hard}
    return leaves.pop() if len(leaves) == 1 and None not in leaves and len(all_leaves) > 1 and len(remotes) > 1 else None


def _lost_peer(said: list[Complaint], story: Story, context: Context) -> Finding | None:
    """Connections that were closed: the peer is dead. Survivors that give up look dead too, so the earliest lines count."""
    closed = [one for one in said if one.told.what in ("peer_closed", "peer_reset", "gloo_closed", "peer_connect") and one.remote]
    if not closed:
        return None
    first = closed[0]
    votes = Counter(one.remote for one in closed)
    peer = first.remote if first.told.what == "gloo_closed" else max(votes, key=lambda name: (votes[name], name == first.remote))
    assert peer is not None
    named = None if _is_address(peer) else peer
    return finding(
        "node.lost" if named or len(votes) == 1 else "job.rank_exit",
        {"node": named, "job": context.job_name},
        f"The connection to {peer} was lost first, by {len({one.local for one in closed})} complainers; what happened there "
        f"is not in this log.",
        evidence=[one.told.evidence() for one in closed],
        culprit="node" if named or len(votes) == 1 else "none",
        layers=("communication",),
        repair="investigate",
        next_steps=(f"Read the log and the kernel log of {peer}: it went first.",),
    )


def _is_address(text: str) -> bool:
    return text.replace(".", "").isdecimal() or ":" in text
