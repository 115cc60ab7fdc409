"""The box of ballots: the newest vote of each witness on each suspicion."""

from collections.abc import Callable

from detectors.core.quorum import Ballot
from detectors.core.types import Verdict, Vote

#: Ballots kept; those whose votes have all expired leave.
BALLOTS_MAX = 50_000


class BallotBox:
    """Keeps votes, one ballot a key.

    Args:
        witnesses: those whose votes count.
        count: counts what is not kept, by reason.
    """

    def __init__(self, witnesses: tuple[str, ...], count: Callable[[str], None]) -> None:
        self._witnesses, self._counts = witnesses, count
        self.ballots: dict[str, Ballot] = {}
        #: Keys that the leader before had doubted -> since when. A doubt that still stands is no new one to the next leader.
        self.before: dict[str, float] = {}

    def keep(self, vote: Vote, now: float) -> Ballot | None:
        """Puts a vote into its ballot; None if it does not count."""
        if vote.witness not in self._witnesses:
            self._counts("vote of an unknown witness")
            return None
        ballot = self.ballots.get(vote.key)
        opened = self.before.pop(vote.key, now) if vote.verdict is Verdict.FAULTY else now
        if ballot is None:
            if len(self.ballots) >= BALLOTS_MAX:
                self._counts("ballot dropped: too many")
                return None
            ballot = self.ballots[vote.key] = Ballot(vote.key, opened)
        elif vote.verdict is Verdict.FAULTY and not ballot.doubted(now):
            ballot.opened = opened
        known = ballot.votes.get(vote.witness)
        # Both on that witness's clock: an older vote that comes late changes nothing. One that has expired stands in no way.
        if known is None or known[0].t <= vote.t or now - known[1] >= known[0].expires_seconds:
            ballot.votes[vote.witness] = (vote, now)
        return ballot

    def doubted(self, key: str, now: float) -> bool:
        """Whether at least one witness still doubts it."""
        ballot = self.ballots.get(key)
        return ballot is not None and ballot.doubted(now)

    def outlived(self, over: Callable[[str], bool], now: float) -> dict[str, float]:
        """Doubts that go on although what they are about is `over`: key -> since when."""
        standing = {key: ballot.opened for key, ballot in self.ballots.items() if over(key) and ballot.doubted(now)}
        return {**self.before, **standing}

    def expire(self, now: float) -> None:
        """Lets the ballots go all of whose votes have expired."""
        keys = [
            key
            for key, ballot in self.ballots.items()
            if not any(now - arrived < vote.expires_seconds for vote, arrived in ballot.votes.values())
        ]
        for key in keys:
            del self.ballots[key]
