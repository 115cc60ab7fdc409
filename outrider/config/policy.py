"""The section `[policy]`: how long the judge waits, what it may do, and how much of it.

Every time is in seconds. The defaults are safe: nothing is done to a job before a person writes `mode = "act"`.
"""

import difflib
import math
from typing import Literal

import msgspec

from outrider.catalogue.faults import FAULTS

Mode = Literal["observe", "advise", "act"]


class FaultRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the site says of one fault class: `[policy.faults."gpu.ecc_contained"]`."""

    #: The response in place of the catalogue's; None keeps the catalogue's.
    response: Literal["ignore", "watch", "page", "drain", "restart"] | None = None
    #: The mode in place of the site's; None keeps it.
    mode: Mode | None = None


class ScopeRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the site says of one job (`[policy.jobs.NAME]`) or one group of nodes (`[policy.groups.NAME]`)."""

    #: The mode in place of the site's; the most careful of all that apply wins.
    mode: Mode | None = None
    #: Nodes of a group: names, or a name that ends in `*`. Unused for jobs.
    nodes: tuple[str, ...] = ()
    #: `hung_after_seconds` of this job; None keeps the site's.
    hung_after_seconds: float | None = None


class PolicySection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole of `[policy]`.

    The modes: `observe` judges and records, `advise` also tells people, `act` also touches jobs and nodes.
    """

    #: What may be done where nothing more special is written; None takes `[site] mode` (see `under`).
    mode: Mode | None = None

    # --- When is a node silent? ---
    #: Silence that makes a suspect, at the least. Four lost beats of one second: a pause of 3 s makes no suspect.
    heartbeat_timeout: float = 4.0
    #: The most to which an unsteady node's own rhythm may stretch it (mean gap + 4 deviations lies between the two).
    heartbeat_timeout_max: float = 8.0
    #: Silence that alone, without a second layer, makes `node.lost`. Larger: fewer false restarts, slower. With the stall
    #: law of docs/decisions (lognormal, median 0.5 s, sigma 1.2) 25 s costs 0.017, 35 s 0.007 false ones per 1000 node-days.
    hard_limit_seconds: float = 35.0
    #: A node whose kernel answers while its processes and its job stand still: `node.hung` after this. Drills set it lower.
    hung_after_seconds: float = 60.0
    #: `node.hung` also waits this many median steps of its job, so that slow steps are no hang.
    hung_after_steps: float = 10.0
    #: How many peers are asked to probe a suspect, and how often they are asked again.
    probers: int = 3
    probe_interval_seconds: float = 2.0
    #: Heartbeats needed before a witness judges a node; fewer tell no rhythm.
    heartbeats_before_judging: int = 3

    # --- When is a job silent? (seconds without progress in a phase; a job's own `limits` win) ---
    init_seconds: float = 1800.0
    compile_seconds: float = 3600.0
    train_seconds: float = 600.0
    data_seconds: float = 600.0
    checkpoint_seconds: float = 1800.0
    eval_seconds: float = 3600.0
    #: A job that trains is called hung (a page and a snapshot) after this many of its median steps ..
    hang_steps: float = 3.7
    #: .. but never sooner than this. Healthy steps reach 3.4 times the median, first steps 5.6 times.
    hang_seconds_min: float = 29.5

    # --- Votes ---
    #: How long a vote counts; a witness that goes silent stops deciding after this.
    vote_seconds: float = 10.0
    #: A witness that was stalled itself for longer than this casts no vote on silence for one time-out.
    stall_seconds: float = 0.5

    # --- Actions ---
    #: How long the leader waits for the emergency snapshot before it restarts from the last good one.
    snapshot_deadline_seconds: float = 5.0
    #: How long a quarantine, a drain, a restart or a page may take before it counts as failed.
    action_deadline_seconds: float = 60.0
    #: Restarts of one job within `job_window_seconds`; one more is refused and a person is paged. 0: no limit.
    job_restarts_max: int = 5
    job_window_seconds: float = 3600.0
    #: Restarts, drains and quarantines in the whole cluster within an hour. 0: no limit. A common cause costs one.
    cluster_actions_per_hour: int = 30
    #: The same within one rack and under one switch: trouble that stays in one place is for a person. 0: no limit.
    rack_actions_per_hour: int = 6
    switch_actions_per_hour: int = 12
    #: A drain takes a node that still works; it is refused when no spare is left. False: drain all the same.
    drain_needs_spare: bool = True
    #: A node that was taken out this often within `lemon_days` gets no slot again before a person has seen to it. 0: never so.
    lemon_count: int = 3
    lemon_days: float = 30.0
    #: In mode `advise`: how long a person may take to approve. 0: for ever. After it `approval_default` holds: `refuse` leaves the
    #: job as it is, and a later approval comes too late; `act` acts.
    approval_seconds: float = 1800.0
    approval_default: Literal["refuse", "act"] = "refuse"
    #: A job that fails this often without a new committed step falls back one snapshot; one failure more, and it is left.
    crash_loop_attempts: int = 3

    # --- Brakes ---
    #: Brake A: more nodes than max(this, `brake_nodes_ratio` of the fleet) lost within `brake_window_seconds` without a
    #: common cause: actions wait `brake_hold_seconds` and a person is paged.
    brake_nodes: int = 3
    brake_nodes_ratio: float = 0.02
    brake_window_seconds: float = 30.0
    brake_hold_seconds: float = 30.0
    #: Brake B: more than this part of the fleet suspect at once: it is probably us. Nothing is done to any node.
    blind_ratio: float = 0.08

    # --- Overrides ---
    faults: dict[str, FaultRule] = {}
    jobs: dict[str, ScopeRule] = {}
    groups: dict[str, ScopeRule] = {}

    def __post_init__(self) -> None:
        positive = (
            "heartbeat_timeout", "hard_limit_seconds", "hung_after_seconds", "vote_seconds", "probe_interval_seconds",
            "snapshot_deadline_seconds", "action_deadline_seconds", "job_window_seconds",
        )  # fmt: skip
        for name in positive:
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be more than 0 (is {getattr(self, name)!r})")
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, int | float) and not (value >= 0 and math.isfinite(value)):  # it would switch a brake or limit off
                raise ValueError(f"{name} must be a number of 0 or more (is {value!r})")
        if self.heartbeat_timeout_max < self.heartbeat_timeout:
            raise ValueError("heartbeat_timeout_max must be at least heartbeat_timeout")
        if self.hard_limit_seconds <= self.heartbeat_timeout:
            raise ValueError("hard_limit_seconds must be more than heartbeat_timeout")
        if not 0 < self.blind_ratio <= 1:
            raise ValueError("blind_ratio must lie in (0, 1]")
        self._check_overrides()

    def _check_overrides(self) -> None:
        """A rule that is about nothing would be believed to hold."""
        for fault in self.faults:
            if fault not in FAULTS:
                close = ", ".join(difflib.get_close_matches(fault, FAULTS, 3))
                near = f" (nearest: {close})" if close else ""
                raise ValueError(f"faults: no class is called {fault!r}{near}")
        for name, rule in self.jobs.items():
            if rule.nodes:
                raise ValueError(f"jobs.{name}.nodes: a job has no nodes here; a group of nodes has")
        for name, rule in self.groups.items():
            if not rule.nodes or rule.mode is None:
                raise ValueError(f"groups.{name}: a group says its nodes and its mode")
            if rule.hung_after_seconds is not None:
                raise ValueError(f"groups.{name}.hung_after_seconds: that is a job's")

    def under(self, site_mode: Mode) -> "PolicySection":
        """This policy with the site's mode where it has none of its own."""
        return self if self.mode is not None else msgspec.structs.replace(self, mode=site_mode)


#: The name that the core uses.
Policy = PolicySection
