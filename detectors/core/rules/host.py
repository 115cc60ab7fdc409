"""What the kernel, the provider and the storage of a node say."""

from collections.abc import Callable
from typing import Any

from detectors.core.docket import Docket
from detectors.core.identity import vote_key
from detectors.core.types import Evidence
from detectors.core.world import World
from outrider.signals import Signal

#: A storage operation that takes longer hangs; a loaded parallel file system answers within some seconds.
STORAGE_SECONDS = 30.0
#: File systems and servers kept.
MOUNTS_MAX = 10_000
#: A kernel's word about memory explains an exit this near.
OOM_SECONDS = 60.0
#: Events end as suspicions after this.
LASTS_SECONDS = 600.0
#: Functions and file systems by which a hung task's line tells that it waits for storage.
_STORAGE_WORDS = (
    "nfs",
    "lustre",
    "ptlrpc",
    "ll_",
    "gpfs",
    "ceph",
    "fuse",
    "xfs_",
    "ext4_",
    "jbd2",
    "btrfs",
    "blk_",
    "io_schedule",
    "wait_on_page",
)
Locate = Callable[[set[tuple[str, ...]], set[tuple[str, ...]]], list[Any]]
#: The subject key of what the clients of a mount share. A spine is a switch.
_SHARED = {"rack": "rack", "power": "power", "switch": "switch", "spine": "switch"}
_FULL = ("no space", "enospc", "disk quota", "quota exceeded", "full")


class HostRule:
    """Judges kernel events, reclaim notices and storage for one witness.

    Args:
        world, docket: what is known, where suspicions are kept.
        locate: failing and working parts -> common causes (the graph's answer).
    """

    def __init__(self, world: World, docket: Docket, locate: Locate) -> None:
        self.world, self.docket, self.locate = world, docket, locate
        #: node -> when its kernel killed for want of memory.
        self.oom: dict[str, tuple[float, str]] = {}
        #: node -> when its memory gave an error that nothing could correct.
        self.memory: dict[str, float] = {}
        #: (server or mount) -> nodes whose operations hang there; and nodes that were served lately.
        self._hanging: dict[str, dict[str, float]] = {}
        self._served: dict[str, dict[str, float]] = {}
        self._accused: dict[str, dict[str, Any]] = {}
        #: Server or mount -> when it began to hang.
        self._begun: dict[str, float] = {}

    def kernel(self, signal: Signal, now: float) -> tuple[str, str] | None:
        """A kernel event. Returns (event, text) where other rules must know: panic, hung_task."""
        node = signal.node
        if node not in self.world.row:
            self.world.count("kernel event of an unknown node")
            return None
        event = str(signal.data.get("event", ""))
        text = signal.text or event.replace("_", " ")
        piece = Evidence(t=now, kind="kernel", subject={"node": node}, effect="confirm", text=text)
        match event:
            case "panic":
                self._accuse("node.panic", {"node": node}, now, piece, f"the kernel of {node} panicked", event)
                return event, text
            case "oom":
                self.oom[str(node)] = (now, text)
            case "memory_uncorrected" | "machine_check":
                if event == "memory_uncorrected":
                    self.memory[str(node)] = now
                busy = bool(self.world.jobs_on(str(node)))
                response = ("page" if event == "machine_check" else None) if busy else "drain"
                self._accuse("node.memory", {"node": node}, now, piece, f"{node}: {text}", event, response=response)
            case "boot":
                return event, text
            case "hung_task":
                if any(word in text.lower() for word in _STORAGE_WORDS):
                    self._stuck_client(str(node), now, piece)
                return event, text
            case "soft_lockup":
                self._accuse("node.hung", {"node": node}, now, piece, f"a CPU of {node} is locked up", event, response="watch")
            case _:
                pass
        return None

    def exit(self, job: str, rank: int, node: str, text: str, now: float) -> bool:
        """A rank ended on a node whose memory has just failed: True, and its job is lost, so the node goes out now."""
        if now - self.memory.get(node, float("-inf")) > OOM_SECONDS:
            return False
        subject = {"job": job, "rank": rank}
        piece = Evidence(t=now, kind="process_exit", subject=subject, effect="confirm", text=text, layer="application")
        reason = f"{node}: its memory gave an error that could not be corrected, and {text}"
        self._accuse("node.memory", {"node": node}, now, piece, reason, "memory_and_exit", response="restart")
        return True

    def reclaim(self, signal: Signal, now: float) -> None:
        """The provider will take the node."""
        if signal.node in self.world.row:
            text = f"the provider takes {signal.node} back" + (f" in {signal.value} s" if signal.value is not None else "")
            piece = Evidence(t=now, kind="reclaim", subject={"node": signal.node}, effect="confirm", text=text)
            self._accuse("node.reclaim", {"node": signal.node}, now, piece, text, "reclaim")

    def rebooted(self, node: str, now: float) -> None:
        """A node has booted."""
        text = f"{node} has booted" + (" while it had work" if self.world.jobs_on(node) else "")
        piece = Evidence(t=now, kind="heartbeat", subject={"node": node}, effect="confirm", text=f"{text}: another boot id")
        jobs = self.world.jobs_on(node)
        self._accuse(
            "node.reboot", {"node": node}, now, piece, text, "booted", response=None if jobs else "watch",
            extra={"dead_ranks": {state.name: list(state.node_ranks[node]) for state in jobs}},
        )  # fmt: skip

    # --- storage ---

    def _stuck_client(self, node: str, now: float, piece: Evidence) -> None:
        """The kernel says that a task hangs in a file system: this node's own client, as long as no other node says it."""
        where = f"client of {node}"
        self._hanging.setdefault(where, {})[node] = now
        self._accused[where] = {"node": node}
        self._accuse(
            "storage.hang", {"node": node}, now, piece, f"a task of {node} hangs in a file system", "hung_task", response="watch",
            culprit="node", decisive=False,
        )  # fmt: skip

    def storage(self, signal: Signal, now: float) -> None:
        """One operation on a mount."""
        node, data = signal.node, signal.data
        if node not in self.world.row:
            self.world.count("storage of an unknown node")
            return
        where = str(signal.server or data.get("server") or signal.mount or "?")
        seconds, error = data.get("seconds"), str(data.get("error") or "")
        if any(word in error.lower() for word in _FULL):
            self._full(signal, now, error)
            return
        if where not in self._served and len(self._served) >= MOUNTS_MAX:
            self.world.count("storage: too many names")
            return
        slow = isinstance(seconds, int | float) and seconds >= STORAGE_SECONDS
        if data.get("ok") is False or slow:
            self._begun.setdefault(where, now)
            self._hanging.setdefault(where, {})[str(node)] = now
            self._served.setdefault(where, {}).pop(str(node), None)
            self._hangs(where, signal, now)
        else:
            self._served.setdefault(where, {})[str(node)] = now
            if self._hanging.get(where, {}).pop(str(node), None) is not None:
                self._answers(where, str(node), now)
            if signal.mount is not None:
                self.docket.clear_subject("storage.full", {"node": node, "mount": signal.mount}, now, "it takes writes again")

    def _hangs(self, where: str, signal: Signal, now: float) -> None:
        clients = sorted(node for node, when in self._hanging[where].items() if now - when <= LASTS_SECONDS)
        seconds, operation = signal.data.get("seconds"), signal.data.get("operation", "an operation")
        text = signal.text or f"{operation} on {where} of {signal.node} takes {seconds} s" + (
            f" ({signal.data['error']})" if signal.data.get("error") else ""
        )
        piece = Evidence(t=now, kind="storage", subject=signal.subject(), effect="confirm", text=text)
        served = [node for node, when in self._served.get(where, {}).items() if now - when <= LASTS_SECONDS]
        names = {key: value for key, value in (("mount", signal.mount), ("server", signal.server)) if value is not None}
        alone = len(clients) == 1 and (served or len(self.world.nodes) > 1)
        culprit = None
        if alone:
            subject: dict[str, Any] = {"node": clients[0], **names}
            reason = f"{where} does not answer {clients[0]}" + (f", and answers {len(served)} others" if served else "")
            culprit = "node" if served else None
        elif (place := self._shared_place(where, clients, now)) is not None:
            subject, culprit = {place[0]: place[1], **names}, "switch"
            reason = f"{where} does not answer the {len(clients)} nodes of {place[0]} {place[1]}, and answers others"
        else:
            subject = names or {"mount": where}
            reason = f"{where} does not answer {len(clients)} nodes"
        before = self._accused.get(where)
        self._accused[where] = subject
        jobs = sorted({state.name for node in clients for state in self.world.jobs_on(node)})
        self._accuse(
            "storage.hang", subject, now, piece, reason, "one_client" if alone else "one_place" if culprit else "server",
            response="page", culprit=culprit, decisive=False,
            extra={"jobs": jobs} | ({"replaces": vote_key("storage.hang", before, "")} if before not in (None, subject) else {}),
        )  # fmt: skip
        if before is not None and before != subject:
            self.docket.clear_subject("storage.hang", before, now, reason)

    def _shared_place(self, where: str, clients: list[str], now: float) -> tuple[str, str] | None:
        """What the clients that hang share besides the mount, if others are still served: (subject key, name)."""
        begun = self._begun.get(where, now)
        served = self._served.get(where, {})
        working: set[tuple[str, ...]] = {("client", node, where) for node, when in served.items() if when > begun}
        causes = self.locate({("client", node, where) for node in clients}, working) if working else []
        if len(causes) != 1 or causes[0].level not in _SHARED or len(causes[0].parts) < len(clients):
            return None
        return _SHARED[causes[0].level], causes[0].name

    def _answers(self, where: str, node: str, now: float) -> None:
        if not self._hanging[where]:
            self._drop(where, now, f"{where} answers {node} again")

    def _drop(self, where: str, now: float, reason: str) -> None:
        self._begun.pop(where, None)
        if (subject := self._accused.pop(where, None)) is not None:
            self.docket.clear_subject("storage.hang", subject, now, reason)

    def stands(self, job: str, now: float, text: str) -> None:
        """A job stands still: storage that hangs under it is the reason."""
        state = self.world.jobs.get(job)
        for where, subject in sorted(self._accused.items()):
            clients = self._hanging.get(where, {})
            if state is not None and any(node in clients for node in state.node_ranks):
                piece = Evidence(t=now, kind="step", subject={"job": job}, effect="confirm", text=text, layer="application")
                known = self.docket.find("storage.hang", subject)
                if known is not None:
                    self._accuse(
                        "storage.hang", subject, now, piece, known.reason, "and_job", response="restart", decisive=False,
                        extra={"jobs": [job]}, culprit=known.culprit,
                    )  # fmt: skip

    def _full(self, signal: Signal, now: float, error: str) -> None:
        subject = {key: value for key, value in (("node", signal.node), ("mount", signal.mount)) if value is not None}
        piece = Evidence(t=now, kind="storage", subject=signal.subject(), effect="confirm", text=signal.text or error)
        self._accuse("storage.full", subject, now, piece, f"{signal.mount or 'a file system'} of {signal.node} is full", "full")

    def _accuse(
        self, fault: str, subject: dict[str, Any], now: float, piece: Evidence, text: str, code: str, *,
        response: str | None = None, extra: dict[str, Any] | None = None, culprit: str | None = None, decisive: bool | None = True,
    ) -> None:  # fmt: skip
        self.docket.accuse(
            fault, subject, now=now, evidence=(piece,), reason=text, reason_code=code, response=response, decisive=decisive,
            lasts=LASTS_SECONDS, extra=extra, culprit=culprit,
        )  # fmt: skip
