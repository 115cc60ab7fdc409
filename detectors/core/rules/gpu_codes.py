"""What the GPU driver says: Xid and SXid codes, joined to one case a card, root told from consequence.

The meaning of a line is the catalogue's (`outrider.catalogue.reading`). This rule adds what needs more than one line: three
collectors that tell of one code, a root that makes other codes its consequences, the driver's verdict (154), lines of
another boot, and the second layer (an exit, a job that stands still) that a soft code needs.
"""

from typing import Any

from detectors.core.docket import Docket
from detectors.core.identity import vote_key
from detectors.core.parts import Gpu, Parts
from detectors.core.rules.gpu_case import CodeCase, parsed
from detectors.core.types import Evidence
from detectors.core.world import World
from outrider.catalogue.codes import CodeBook
from outrider.catalogue.faults import RESPONSES
from outrider.catalogue.reading import Reading, read_code
from outrider.signals import Signal

#: A case stands this long after its last line; the council has acted long before.
CASE_SECONDS = 900.0
#: Codes of one case this close belong together: a lost card sprays lines for some minutes.
TOGETHER_SECONDS = 300.0
#: So many cards of one node with the same code have a cause that they share: riser, power, baseboard.
CARDS_OF_ONE_CAUSE = 3
#: A rank that ended this long before or after a line ended because of it.
EXIT_SECONDS = 120.0
#: A rank that its own watchdog aborts this soon after a line on its card ended because of it: the watchdog turns any error of the
#: device into an abort.
VICTIM_SECONDS = 30.0
#: A soft root that no second layer confirmed is told to a person after this.
PAGE_AFTER_SECONDS = 60.0
#: Lines told later than this are old: a program's error of long ago is nobody's matter now, a dead card still is.
OLD_SECONDS = 60.0
#: A boot begins at most this long before its first heartbeat.
BOOT_SECONDS = 300.0
#: Lines waiting for a heartbeat to tell which boot is the present one, at most, and for how long.
WAITING_MAX = 1_000
WAITING_SECONDS = 600.0


class GpuCodeRule:
    """Judges Xids and SXids for one witness.

    Args:
        world, parts, docket: what is known, the cards, where suspicions are kept.
        codes: the catalogue's codes, with the site's overrides.
    """

    def __init__(self, world: World, parts: Parts, docket: Docket, codes: CodeBook) -> None:
        self.world, self.parts, self.docket, self.codes = world, parts, docket, codes
        self.cases: dict[int, CodeCase] = {}
        #: node -> its present boot, as heartbeats tell it.
        self.boots: dict[str, Any] = {}
        #: node -> when its present boot was first heard of, if another one was heard before.
        self.since: dict[str, float] = {}
        self._waiting: list[tuple[float, Signal]] = []

    # --- what comes in ---

    def code(self, signal: Signal, now: float) -> None:
        """One line of the driver."""
        boot = signal.data.get("boot")
        if boot is not None and signal.node in self.world.row:
            present = self.boots.get(signal.node)
            if (present is None and signal.node not in self.boots) or (present is not None and boot != present):
                # Before the first heartbeat nobody knows whether this is the present boot; after a reboot the log may be read
                # before the first heartbeat of the new boot. The next heartbeat tells.
                self._waiting = [*self._waiting[-WAITING_MAX:], (now, signal)]
                return
        observed = signal.data.get("observed_s")
        if isinstance(observed, int | float) and observed < self.since.get(str(signal.node), float("-inf")) - BOOT_SECONDS:
            self.world.count("line of an older boot")
            return
        self._judge(signal, now)

    def booted(self, node: str, boot: Any, again: bool, now: float) -> None:
        """A heartbeat of another boot than before (`again`), or the first: what waited for it is judged or dropped."""
        self.boots[node] = boot
        if again:
            self.since[node] = now
        waiting, self._waiting = self._waiting, []
        for when, signal in waiting:
            if signal.node != node or now - when > WAITING_SECONDS:
                self._waiting.append((when, signal))
            elif boot is None or signal.data.get("boot") == boot:
                self._judge(signal, now)
            else:
                self.world.count("line of an older boot")
        for identity, case in list(self.cases.items()) if again else ():
            if case.gpu.node == node and case.last < now - 1.0:
                self._clear(case, now, f"{node} has booted since")
                del self.cases[identity]

    def _judge(self, signal: Signal, now: float) -> None:
        signal = parsed(signal)
        reading = read_code(signal, self.codes)
        if reading.role == "injected":
            self.world.count("injected code")
            return
        gpu = self.parts.find(signal) if signal.kind == "xid" else self._switch(signal)
        if gpu is None:
            self.world.count("code of an unknown card")
            return
        if signal.kind == "xid":
            gpu = self.parts.told(gpu, reading.code.code, now)
        case = self._case(gpu, reading, now)
        case.lines += 1
        case.last = now
        known = case.readings.get(reading.code.code)
        if known is None or RESPONSES.index(reading.response) >= RESPONSES.index(known.response):
            case.readings[reading.code.code] = reading
        if reading.recovered:
            self._clear(case, now, "the driver says that the card has recovered")
            return
        observed = signal.data.get("observed_s")
        case.old = isinstance(observed, int | float) and signal.t - observed > OLD_SECONDS
        text = signal.text or f"{signal.kind} {signal.value} ({reading.code.meaning})"
        piece = Evidence(t=now, kind=signal.kind, subject=gpu.subject(), effect="confirm", text=f"{text} [{signal.source or '?'}]")
        if len(case.evidence) < 12 and all(piece.text != one.text for one in case.evidence):
            case.evidence.append(piece)
        self._layers(case, now)
        self._tell(case, now)

    def _switch(self, signal: Signal) -> Gpu | None:
        """The NVSwitch of an SXid as a part of its node."""
        if signal.node not in self.world.row:
            return None
        found = self.parts.find(signal)
        return found or Gpu(str(signal.node), pci=signal.pci)

    def _case(self, gpu: Gpu, reading: Reading, now: float) -> CodeCase:
        """The case that a line belongs to: the card's own, else that of the other end of an NVLink on the same node."""
        case = self.cases.get(id(gpu))
        if case is not None:
            return case
        for other in self.cases.values():
            same_node = other.gpu.node == gpu.node and now - other.last <= TOGETHER_SECONDS
            root = other.root()
            if not same_node or root is None:
                continue
            nvlink = reading.fault == "gpu.nvlink" and root.fault == "gpu.nvlink"
            if reading.role == "root" and reading.code.code == root.code.code and gpu.node == other.gpu.node:
                # The same on another card of the node within minutes: what they share is asked for, not each card.
                other.cards.add(id(gpu))
                self.cases[id(gpu)] = other
                return other
            consequence = reading.role in ("secondary", "severity", "verdict") or reading.code.scope in ("link", "switch")
            if nvlink or (root.fault == "gpu.fallen_off_bus" and consequence):
                self.cases[id(gpu)] = other
                return other
        case = self.cases[id(gpu)] = CodeCase(gpu, now, now, cards={id(gpu)})
        return case

    # --- the second layer ---

    def exit(self, job: str, rank: int, node: str, index: int, text: str, now: float) -> bool:
        """A rank ended: True if a root on its card (or on the whole node's) explains it. The exit then confirms the root."""
        for case in self._near(node, index):
            root = case.root()
            if root is None or now - case.last > EXIT_SECONDS or case.old:
                continue
            case.evidence.append(
                Evidence(
                    t=now, kind="process_exit", subject={"job": job, "rank": rank}, effect="confirm", text=text, layer="application"
                )
            )
            self._tell(case, now)
            return root.role in ("root", "verdict")
        return False

    def suspects(self, node: str, index: int, now: float) -> bool:
        """Whether the driver has lately told of a fault of this very card."""
        return any(
            case.gpu.index == index and now - case.last <= VICTIM_SECONDS and not case.old and case.root() is not None
            for case in self._distinct()
            if case.gpu.node == node
        )

    def stands(self, job: str, now: float, text: str) -> None:
        """A job stands still: roots on its nodes explain it."""
        state = self.world.jobs.get(job)
        if state is None:
            return
        for case in self._distinct():
            if case.gpu.node in state.node_ranks and case.root() is not None and not case.old:
                piece = Evidence(t=now, kind="step", subject={"job": job}, effect="confirm", text=text, layer="application")
                if all(one.kind != "step" for one in case.evidence):
                    case.evidence.append(piece)
                    self._tell(case, now)

    def _layers(self, case: CodeCase, now: float) -> None:
        """Exits that came before the line: kernel logs are read with delay."""
        for state in self.world.jobs_on(case.gpu.node):
            for rank, (code, when) in sorted(state.exits.items()):
                node, index = state.slots[rank] if 0 <= rank < state.size else ("", -1)
                mine = node == case.gpu.node and case.gpu.index in (None, index)
                if mine and now - when <= EXIT_SECONDS and code not in (0, -15, 143):
                    text = f"rank {rank} of {state.name} ended with {code}"
                    if all(one.text != text for one in case.evidence):
                        case.evidence.append(
                            Evidence(
                                t=now, kind="process_exit", subject={"job": state.name, "rank": rank}, effect="confirm", text=text,
                                layer="application",
                            )
                        )  # fmt: skip

    def _near(self, node: str, index: int) -> list[CodeCase]:
        own = [case for case in self._distinct() if case.gpu.node == node]
        return sorted(own, key=lambda case: (case.gpu.index != index, case.gpu.index is not None, case.opened))

    def _distinct(self) -> list[CodeCase]:
        return list({id(case): case for case in self.cases.values()}.values())

    # --- the verdict on a card ---

    def _tell(self, case: CodeCase, now: float) -> None:
        root = case.root()
        if root is None:
            shown = max(case.readings.values(), key=lambda one: RESPONSES.index(one.response))
            if shown.response == "ignore":
                return
            self._accuse(case, shown, "watch", True, f"Xid {shown.code.code}: {shown.code.meaning}; by itself no fault", now)
            return
        verdict = next((one for one in case.readings.values() if one.role == "verdict" and not one.recovered), None)
        response, repair = root.response, root.repair
        if verdict is not None and RESPONSES.index(verdict.response) > RESPONSES.index(response):
            response = verdict.response
        if verdict is not None and verdict.repair != "investigate":
            repair = verdict.repair
        layers = {one.layer for one in case.evidence}
        busy = any(state for state in self.world.jobs_on(case.gpu.node))
        decisive = root.decisive or len(layers) > 1
        if response == "restart" and not busy:
            response, decisive = "drain", True  # nothing runs there: keep the node out, nobody is harmed by it
        if case.old and not root.decisive:
            response = "watch"
        if response in ("drain", "restart") and not decisive:
            if case.page_at is None:
                case.page_at = now + PAGE_AFTER_SECONDS
            if now >= case.page_at:
                # Where the vendor only asks for the program to be restarted and no program ended, there is nothing to do.
                action = root.code.action
                response = "watch" if action.startswith(("RESTART_APP", "IGNORE")) and "RESET" not in action else "page"
        what = f"{'SXid' if root.code.code > 9999 else 'Xid'} {root.code.code}: {root.code.meaning}"
        what += f"; {root.note}" if root.note else ""
        self._accuse(case, root, response, decisive or response in ("page", "watch"), what, now, repair, decisive)

    def _accuse(
        self, case: CodeCase, root: Reading, response: str, sure: bool, text: str, now: float, repair: str | None = None,
        decisive: bool = False,
    ) -> None:  # fmt: skip
        several = len(case.cards) >= CARDS_OF_ONE_CAUSE
        subject = {"node": case.gpu.node} if several else case.gpu.subject()
        extra: dict[str, Any] = {"codes": sorted(case.readings), "root": root.code.code, "lines": case.shown_lines()}
        ranks = self.world.seat(case.gpu.node, case.gpu.index)
        if ranks and not several:
            subject |= ranks
        if several:
            text = f"{len(case.cards)} cards of {case.gpu.node}: {text}"
        dead = {state.name: set(state.exits) for state in self.world.jobs_on(case.gpu.node)}
        if root.fault == "gpu.fallen_off_bus" and ranks:
            dead[ranks["job"]].add(ranks["rank"])
        extra["dead_ranks"] = {job: sorted(gone) for job, gone in dead.items() if gone}
        key = (root.fault, case.gpu.key())
        old, case.key = case.key, key
        if old is not None and old != key:
            extra["replaces"] = vote_key(*old, "")
        self.docket.accuse(
            root.fault, subject, key_subject=key[1], now=now, sure=sure, decisive=decisive, response=response,
            repair=repair or root.repair, evidence=tuple(case.evidence), reason=text, reason_code=f"code_{response}",
            extra=extra, lasts=CASE_SECONDS, culprit="node" if several else "app" if root.role == "app" else None,
        )  # fmt: skip
        if old is not None and old != key:
            self.docket.clear(vote_key(*old, ""), now, f"it is {root.fault}")

    def _clear(self, case: CodeCase, now: float, reason: str) -> None:
        if case.key is not None:
            self.docket.clear(vote_key(*case.key, ""), now, reason)
            case.key = None

    # --- time ---

    def advance(self, now: float) -> None:
        """Soft roots without a second layer become a page."""
        for identity, case in list(self.cases.items()):
            if case.page_at is not None and now >= case.page_at:
                self._tell(case, now)
                case.page_at = float("inf")
            if now - case.last > CASE_SECONDS:
                del self.cases[identity]

    def next_due(self) -> float:
        """When `advance` has something to do."""
        return min((case.page_at for case in self.cases.values() if case.page_at is not None), default=float("inf"))
