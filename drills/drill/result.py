"""What one fault came to: the object that `--json` prints, and what the report adds to it."""

from dataclasses import dataclass, field
from typing import Any, Final

#: The figures of the table, in their order: key -> heading.
FIGURES: Final[dict[str, str]] = {
    "detect_s": "detect",
    "confirm_s": "confirm",
    "snapshot_s": "snapshot",
    "replace_s": "spare in",
    "load_s": "load",
    "first_step_s": "first step",
    "lost_steps": "steps lost",
    "steps_compared": "compared",
    "loss_equal": "losses equal",
    "digest_equal": "digests equal",
}


@dataclass(kw_only=True)
class Outcome:
    """One fault's outcome. Times are seconds from the fault on one monotonic clock, None where they do not apply."""

    fault: str
    story: str
    ok: bool = False
    incident: dict[str, Any] | None = None
    detect_s: float | None = None
    confirm_s: float | None = None
    snapshot_s: float | None = None
    replace_s: float | None = None
    load_s: float | None = None
    first_step_s: float | None = None
    lost_steps: int | None = None
    steps_compared: int = 0
    loss_equal: bool | None = None
    digest_equal: bool | None = None
    actions: list[dict[str, Any]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    # for the report only
    timeline: list[tuple[float, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    losses: dict[int, float] = field(default_factory=dict)
    baseline_losses: dict[int, float] = field(default_factory=dict)
    resumed_step: int | None = None

    def absorb(self, other: "Outcome") -> None:
        """Takes in another part of the same fault: right only if both are, compared only where both agree."""
        self.story = f"{self.story} Then again: {other.story}"
        self.ok = self.ok and other.ok
        self.failures += [f"{other.fault}: {failure}" for failure in other.failures]
        self.notes += [f"{other.fault}: {note}" for note in other.notes]
        self.actions += other.actions
        self.steps_compared = min(self.steps_compared, other.steps_compared)
        self.loss_equal = bool(self.loss_equal and other.loss_equal)
        self.digest_equal = bool(self.digest_equal and other.digest_equal)
        self.incident = self.incident or other.incident

    def to_json(self) -> dict[str, Any]:
        """The object of the contract."""
        keys = ["fault", "ok", "incident", *list(FIGURES)[:6], "lost_steps", "steps_compared", "loss_equal", "digest_equal",
                "actions", "failures"]  # fmt: skip
        return {key: getattr(self, key) for key in keys}

    def cell(self, key: str) -> str:
        """One figure as people read it."""
        match getattr(self, key):
            case None:
                return "-"
            case bool() as answer:
                return "yes" if answer else "NO"
            case float() as seconds:
                return f"{seconds:.2f} s"
            case other:
                return str(other)
