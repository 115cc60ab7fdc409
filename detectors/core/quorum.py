"""Is it true? Counts the witnesses' votes on one suspicion, and knows what the silence of a witness means.

Quorum is a majority of the witnesses that are configured, not of those that answer: a minority decides nothing. A
witness that abstains, or says nothing, is not counted as faulty; one that hears the suspect vetoes.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from detectors.core.types import Verdict, Vote
from outrider.catalogue import RESPONSES

#: A witness that hears the suspect has this long to say so. Its view comes each second; half a second is for the ledger.
VETO_SECONDS = 1.5
#: A view older than this says nothing any more.
VIEW_FRESH_SECONDS = 5.0

#: A witness that shows no view for this long is lost; one lost vote or a slow ledger is not.
WITNESS_SECONDS = 15.0
#: A witness that finds this part of its nodes late while the others find almost none sits behind a broken path of its own.
WITNESS_SIDE_RATIO, WITNESS_SIDE_MIN, WITNESS_SIDE_OTHERS = 0.2, 3, 0.05
#: .. for so long: views of one moment are a second apart, and a cut that ends is seen by one witness before the others.
WITNESS_SIDE_SECONDS = 5.0


class Outcome(StrEnum):
    """What the votes on one suspicion say together."""

    NOTHING = "nothing"
    SUSPECTED = "suspected"
    CONFIRMED = "confirmed"
    REFUTED = "refuted"


@dataclass(slots=True)
class Ballot:
    """The newest vote of each witness on one key, with the time of its arrival at the leader."""

    key: str
    opened: float
    votes: dict[str, tuple[Vote, float]] = field(default_factory=dict)

    def doubted(self, now: float) -> bool:
        """Whether at least one witness still doubts."""
        return any(vote.verdict is Verdict.FAULTY and now - arrived < vote.expires_seconds for vote, arrived in self.votes.values())


    def changes_at(self, now: float) -> float | None:
        """When the next vote expires, if the witnesses are not of one opinion: what is left then says something else."""
        live = [(vote.verdict, arrived + vote.expires_seconds) for vote, arrived in self.votes.values()]
        live = [(verdict, ends) for verdict, ends in live if ends > now]
        return min(ends for _, ends in live) if len({verdict for verdict, _ in live}) > 1 else None


@dataclass(slots=True, frozen=True)
class Tally:
    """The count. `votes`: witness -> faulty, clear or abstain; `wait_until`: ask again then, if it is set."""

    outcome: Outcome
    votes: dict[str, str]
    newest: Vote | None
    wait_until: float | None = None
    #: A majority names the same culprit and subject as the newest vote.
    agreed: bool = False


@dataclass(slots=True)
class View:
    """What a witness last said of all nodes together."""

    arrived: float
    quiet: frozenset[str]
    quiet_count: int
    late_count: int
    known: int
    abstains: bool


class Quorum:
    """Counts votes. Times are the leader's clock at arrival; no witness's own clock is compared with another's."""

    def __init__(self, witnesses: tuple[str, ...]) -> None:
        self.witnesses = witnesses
        self.needed = len(witnesses) // 2 + 1
        self.views: dict[str, View] = {}
        #: Witnesses that alone find many nodes late -> since when.
        self.odd: dict[str, float] = {}

    def saw(self, vote: Vote, now: float) -> None:
        """Keeps a witness's view."""
        view: dict[str, Any] = vote.extra.get("view", {})
        self.views[vote.witness] = View(
            now, frozenset(view.get("quiet", ())), int(view.get("quiet_count", 0)), int(view.get("late_count", 0)),
            int(view.get("known", 0)), bool(view.get("abstains")),
        )  # fmt: skip

    def expect(self, witnesses: set[str], now: float) -> None:
        """Witnesses that the leader before knew: one of which no view is left is not up, and is missed if it stays so."""
        for witness in sorted(witnesses - self.views.keys()):
            self.views[witness] = View(now - VIEW_FRESH_SECONDS - 1.0, frozenset(), 0, 0, 0, True)

    def hears(self, witness: str, node: str, since: float) -> bool:
        """Whether a witness, by a view newer than `since`, has heard the node within half a time-out."""
        view = self.views.get(witness)
        if view is None or view.abstains or view.known == 0 or view.arrived <= since:
            return False
        return node not in view.quiet and view.quiet_count <= len(view.quiet)

    def is_up(self, witness: str, now: float) -> bool:
        """Whether a witness has shown its view lately."""
        view = self.views.get(witness)
        return view is not None and now - view.arrived <= VIEW_FRESH_SECONDS

    def doubts(self, now: float) -> dict[str, tuple[str, str] | None]:
        """What the witnesses' views say of each other: (fault, reason), or None for a witness that sees as the others do.

        Nothing bad is said while no majority beside it shows fresh views: then it is the leader, or the ledger, that was late.
        A witness of which nothing can be said is left out.
        """
        fresh = [witness for witness in self.views if self.is_up(witness, now)]
        found: dict[str, tuple[str, str] | None] = {}
        for witness, view in sorted(self.views.items()):
            others = [self.views[other] for other in fresh if other != witness]
            if len(others) < self.needed:
                if self.is_up(witness, now) and witness not in self.odd:
                    found[witness] = None
                continue
            found[witness] = None
            if now - view.arrived > WITNESS_SECONDS:
                found[witness] = ("monitor.witness_lost", f"{witness} has shown no view for {now - view.arrived:.0f} s")
            elif now - self._odd_since(witness, view, others, now) >= WITNESS_SIDE_SECONDS:
                text = f"{witness} alone finds {view.late_count} of {view.known} nodes silent: its own path is broken"
                found[witness] = ("monitor.blind", text)
        return found

    def _odd_since(self, witness: str, view: View, others: list[View], now: float) -> float:
        """Since when a witness alone finds many nodes late; `now` if it does not."""
        many = view.late_count >= max(WITNESS_SIDE_MIN, WITNESS_SIDE_RATIO * view.known)
        few = all(other.late_count <= WITNESS_SIDE_OTHERS * max(other.known, 1) for other in others)
        if not (many and few and self.is_up(witness, now)):
            self.odd.pop(witness, None)
            return now
        return self.odd.setdefault(witness, now)

    def tally(self, ballot: Ballot, now: float) -> Tally:
        """Counts one ballot."""
        opinions: dict[str, str] = {}
        live: dict[str, Vote] = {}
        for witness in self.witnesses:
            entry = ballot.votes.get(witness)
            if entry is not None and now - entry[1] < entry[0].expires_seconds:
                live[witness] = entry[0]
                opinions[witness] = entry[0].verdict.value
        faulty = [vote for vote in live.values() if vote.verdict is Verdict.FAULTY]
        if not faulty:
            newest = max(live.values(), key=lambda vote: vote.t, default=None)
            cleared = sum(1 for vote in live.values() if vote.verdict is Verdict.CLEAR)
            return Tally(Outcome.REFUTED if cleared else Outcome.NOTHING, opinions, newest)
        newest = max(faulty, key=lambda vote: (vote.extra.get("sure", False), len(vote.evidence), vote.t))
        wait = None
        if "silence" in newest.extra or "silence_group" in newest.extra:
            wait = self._listen(ballot, newest, opinions, live, now)
            # Of one node a CLEAR is a heartbeat. Of a group it only says that this witness names the group otherwise.
            judged = self.witnesses if "silence" in newest.extra else [one for one in self.witnesses if one not in live]
            if any(opinions.get(witness) == Verdict.CLEAR for witness in judged):
                return Tally(Outcome.SUSPECTED if len(faulty) >= self.needed else Outcome.NOTHING, opinions, newest)
        certain = [vote for vote in faulty if vote.extra.get("sure", False) and _layered(vote)]
        sure = len(certain)
        if sure >= self.needed and wait is None:
            newest = self._majority(certain)
            alike = sum(1 for vote in faulty if vote.culprit == newest.culprit and vote.subject.keys() == newest.subject.keys())
            return Tally(Outcome.CONFIRMED, opinions, newest, agreed=alike >= self.needed)
        if len(faulty) >= self.needed:
            return Tally(Outcome.SUSPECTED, opinions, newest, wait if sure >= self.needed else None)
        return Tally(Outcome.NOTHING, opinions, newest)

    def _majority(self, certain: list[Vote]) -> Vote:
        """The fullest vote whose response a majority stands behind: a minority that asks for more gets no more."""
        ranks = sorted((RESPONSES.index(vote.response) for vote in certain), reverse=True)
        level = ranks[self.needed - 1]
        agreed = [vote for vote in certain if RESPONSES.index(vote.response) <= level]
        return max(agreed, key=lambda vote: (RESPONSES.index(vote.response), len(vote.evidence), vote.t))

    def _listen(self, ballot: Ballot, newest: Vote, opinions: dict[str, str], live: dict[str, Vote], now: float) -> float | None:
        """What witnesses without a vote say by their view of a silent node, or of most nodes of a silent group.

        Returns when to ask again, if one of them still may speak.
        """
        nodes = newest.extra.get("nodes") if "silence_group" in newest.extra else None
        nodes = nodes or [newest.subject.get("node", "")]
        wait = None
        for witness in self.witnesses:
            if witness in live:
                continue
            if 2 * sum(1 for node in nodes if self.hears(witness, str(node), ballot.opened)) > len(nodes):
                opinions[witness] = Verdict.CLEAR.value
            elif self.is_up(witness, now) and now < ballot.opened + VETO_SECONDS:
                wait = ballot.opened + VETO_SECONDS
        return wait


def _layered(vote: Vote) -> bool:
    """Whether the evidence is enough for the response: one decisive signal, or two layers, or nobody is moved for it."""
    return vote.decisive or len(vote.layers) >= 2 or vote.response not in ("drain", "restart")
