"""Kueue as far as the adapter meets it: admits, evicts by `spec.active` or preemption, frees the quota when pods are gone."""

from typing import Any

#: Conditions' times grow by a second with each change.
START = "2026-01-01T01:00:{:02d}Z"


class FakeKueue:
    """Watches over one Workload. `suspended`: the job's controller brings no pod back. `slow`: looks before the quota is free."""

    def __init__(self, workload: dict[str, Any]) -> None:
        self.workload = workload
        self.suspended = False
        self.slow = 0
        self.changes = 0
        #: Every change of `spec.active`, and how many pods there were then.
        self.story: list[tuple[bool, int]] = []
        self.admit()

    def set(self, kind: str, on: bool, reason: str) -> None:
        conditions = {one["type"]: one for one in self.workload["status"]["conditions"]}
        self.changes += 1
        conditions[kind] = {
            "type": kind, "status": "True" if on else "False", "reason": reason, "message": reason,
            "lastTransitionTime": START.format(self.changes % 60),
        }  # fmt: skip
        self.workload["status"]["conditions"] = list(conditions.values())

    def says(self, kind: str) -> str:
        return next((one["status"] for one in self.workload["status"]["conditions"] if one["type"] == kind), "")

    def admit(self) -> None:
        self.set("QuotaReserved", True, "QuotaReserved")
        self.set("Admitted", True, "Admitted")
        self.set("PodsReady", True, "Started")
        self.set("Evicted", False, "QuotaReserved")
        self.set("Preempted", False, "QuotaReserved")
        self.set("Requeued", False, "QuotaReserved")
        self.suspended = False

    def evict(self, reason: str) -> None:
        """The job is suspended: its controller ends the pods."""
        self.set("Evicted", True, reason)
        if reason == "Preempted":
            self.set("Preempted", True, "InClusterQueue")
        self.set("PodsReady", False, "WaitForStart")
        self.suspended = True

    def look(self, pods: int) -> bool:
        """What Kueue does next. Says whether the job is admitted anew: its pods come back."""
        active = self.workload["spec"].get("active", True)
        if not active and self.says("Evicted") != "True":
            self.evict("Deactivated")
        if self.suspended and not pods and self.says("QuotaReserved") == "True":
            self.slow -= 1
            if self.slow < 0:
                self.set("QuotaReserved", False, "Pending")
                self.set("Admitted", False, "NoReservation")
        if active and self.suspended and self.says("QuotaReserved") == "False" and self.says("Requeued") == "True":
            self.admit()
            return True
        return False

    def activity(self, before: bool, pods: int) -> None:
        """`spec.active` may have been changed."""
        now = self.workload["spec"].get("active", True)
        if now is not before:
            self.story.append((now, pods))
            if now:
                self.set("Requeued", True, "Reactivated")
