"""How the leader speaks with its council: what it needs of one, and how it tells it things so that one bug stops nothing else."""

from typing import Any, Protocol

from detectors.core.types import Decision, Vote

#: Things that the council failed on; more would be one bug seen many times.
POISON_MAX = 1_000


class CouncilLike(Protocol):
    """What the edge needs of a council."""

    def observe(self, event: Any, now: float) -> list[Decision]: ...

    def observe_votes(self, votes: list[Vote], now: float) -> list[Decision]: ...

    def advance(self, now: float) -> list[Decision]: ...

    def next_deadline(self) -> float | None: ...

    @property
    def unsaved(self) -> bool: ...

    def snapshot(self) -> Any: ...

    def saved(self) -> None: ...

    def restore(self, state: Any) -> None: ...


class Teller:
    """Tells the council one thing after another. What it fails on, it is never told again."""

    def __init__(self) -> None:
        self._poison: set[str] = set()

    def tell(self, council: CouncilLike, event: Any, now: float) -> list[Decision]:
        """One thing, or the votes on one. Raises what the council raises."""
        names = {_name(one): one for one in (event if isinstance(event, list) else [event])}
        fresh = [one for name, one in names.items() if name not in self._poison]
        if not fresh:
            return []
        try:
            return council.observe_votes(fresh, now) if isinstance(event, list) else council.observe(event, now)
        except Exception:
            self._poison.update(list(names)[: POISON_MAX - len(self._poison)])
            raise


def by_key(votes: list[Vote]) -> list[list[Vote]]:
    """The votes of one turn, those on one key together (half of them would tell a new leader something else), the newest last."""
    found: dict[str, list[Vote]] = {}
    for vote in votes:
        found[vote.key] = [*found.pop(vote.key, []), vote]
    return list(found.values())


def _name(event: Any) -> str:
    """The same thing, told again, has the same name; of a vote that is read again less of its life is left."""
    return f"vote {event.key} {event.witness} {event.t}" if isinstance(event, Vote) else f"{type(event).__name__} {event!r}"
