"""Gathers what the decisions of one turn of the council mean for the ledger, to be written in one transaction. Pure."""

from dataclasses import replace
from typing import Any

from detectors.core.types import Action, ActionResult, Decision, IncidentChange, OperatorEvent
from detectors.witness import split, translate
from detectors.witness.ledger import IncidentWrite, LeaderState, OrderTo, VerdictWrite
from detectors.witness.outbox import OutboxRow
from outrider.fleet import Job

#: How long the notice that an incident began or is over may take before it counts as failed, seconds.
NOTICE_SECONDS = 60.0
#: States in which an incident may still need what was copied for it.
OPEN_STATES = frozenset({"suspected", "confirmed", "acting", "recovering"})
#: Responses of which people hear, whatever is done or refused besides.
TOLD = ("page", "drain", "restart")


class Draft:
    """One turn's writes. `jobs`: where ranks are. `now`: this witness's clock; `wall`: seconds since 1970, for people;
    `heartbeat_seconds`: pace of heartbeats, for the split of the time to detection."""

    def __init__(
        self,
        state: LeaderState,
        pictures: dict[str, dict[str, Any]],
        jobs: dict[str, Job],
        now: float,
        wall: float,
        heartbeat_seconds: float,
    ) -> None:
        self._state, self._jobs, self.now, self._wall = state, jobs, now, wall
        self._heartbeat_seconds = heartbeat_seconds
        self.pictures = pictures
        self.fence = state.fence
        self.verdicts: list[VerdictWrite] = []
        self.incidents: list[IncidentWrite] = []
        self.claims: list[tuple[str, str]] = []
        #: Spare -> incident that holds it. A recovery that is amended keeps the spares of the incident before it.
        self._owners = dict(state.claims)
        self.releases: list[str] = []
        self.outbox: list[OutboxRow] = []
        self.orders: list[OrderTo] = []
        self.cleared: list[str] = []
        self.audit: list[dict[str, Any]] = []
        self._untold: dict[str, IncidentChange] = {}

    def decision(self, decision: Decision) -> None:
        match decision:
            case IncidentChange():
                self._change(decision)
            case Action():
                self._action(decision)
            case _:
                raise TypeError(f"a council may not decide {type(decision).__name__}")

    def result(self, result: ActionResult, row: OutboxRow | None) -> None:
        picture = self.pictures.get(row.incident) if row is not None else None
        if row is not None and picture is not None:
            self._write(translate.result_write(result, row.action, self.now, self._wall, picture))

    def word(self, event: OperatorEvent) -> None:
        """What a person said, for the auditor; a release also ends the node's claim and its `stop` order."""
        self.audit.append(translate.word_entry(event, self._wall))
        if event.kind == "release":
            self._release(event.target)
        before = self.pictures.get(event.target)
        if before is not None:
            self._write(translate.word_write(event, self.now, self._wall, before))

    def mark(self, incident: str, name: str, t: float) -> None:
        """A recovery came so far: kept among the incident's times."""
        before = self.pictures[incident]
        picture = {**before, "times": {**before.get("times", {}), name: t}}
        line = {"event": name, "t": t, "wall": translate.iso(self._wall), "incident": incident}
        self._write(IncidentWrite(incident=incident, state=before["state"], picture=picture, line=line))

    def tell(self) -> None:
        """People hear once of every confirmed incident, also where its actions were refused, but not in mode `observe`."""
        for incident, change in self._untold.items():
            self._write(translate.told_write(change, self.now, self._wall, self.pictures[incident]))
            row = translate.told_row(change, self.pictures[incident], self.fence, NOTICE_SECONDS, self._wall)
            self.outbox.append(row)
        self._untold.clear()

    def _change(self, change: IncidentChange) -> None:
        before = self.pictures.get(change.incident)
        if change.event == "confirmed" and change.response in TOLD and "page" not in (before or {}).get("times", {}):
            self._untold[change.incident] = change
        elif change.event == "resolved":
            self._untold.pop(change.incident, None)
        write = translate.incident_write(change, self._wall, before)
        if (parts := self._split(change, write.picture)) is not None:
            write = replace(write, picture=write.picture | parts)
        self._write(write)
        if change.event in ("confirmed", "resolved"):
            self._verdict(change)
        if change.event == "refuted":
            self.orders += translate.drop_orders(change.incident, self._let_go(change))
        if change.event == "resolved" and before is not None and "page" in before.get("times", {}):
            picture = self.pictures[change.incident]
            self.outbox.append(translate.resolved_row(change, picture, self.fence, NOTICE_SECONDS, self._wall))

    def _let_go(self, change: IncidentChange) -> list[Job]:
        """Jobs of a refuted suspicion of which no other incident is open: their early copies are of no use any more."""
        wanted = {
            job for picture in self.pictures.values() if picture.get("state") in OPEN_STATES for job in self._jobs_of(picture)
        }
        return [job for name, job in self._jobs_of({"subject": change.subject}).items() if name not in wanted]

    def _jobs_of(self, picture: dict[str, Any]) -> dict[str, Job]:
        subject = picture.get("subject", {})
        return {
            name: job
            for name, job in self._jobs.items()
            if name == subject.get("job") or any(node == subject.get("node") for node, _ in job.slots)
        }

    def _split(self, change: IncidentChange, picture: dict[str, Any]) -> dict[str, Any] | None:
        """Where the seconds went, once they are over."""
        if change.event == "confirmed" and "detection" not in picture:
            parts = split.detection(picture, self._heartbeat_seconds)
            return {"detection": parts} if parts is not None else None
        if change.event == "resolved":
            parts = split.recovery(picture)
            return {"recovery": parts} if parts is not None else None
        return None

    def _verdict(self, change: IncidentChange) -> None:
        subject = ",".join(f"{key}={value}" for key, value in change.subject.items())
        incarnation = str(change.extra.get("incarnation", change.incident))
        written = {(w.subject, w.incarnation): w.version_before + 1 for w in self.verdicts}
        place = (subject, incarnation)
        version = written.get(place, self._state.verdicts.get(place, 0))
        self.verdicts.append(
            VerdictWrite(
                subject=subject,
                incarnation=incarnation,
                version_before=version,
                incident=change.incident,
                fault=change.fault,
                state=change.event,
            )
        )

    def _action(self, action: Action) -> None:
        if action.action == "page" or (action.refused or "").startswith("mode observe"):
            self._untold.pop(action.incident, None)
        if action.incident:  # a node may be given back that no incident is known of
            before = self.pictures.get(action.incident, {"incident": action.incident})
            self._write(translate.action_write(action, self._wall, before))
        self.audit.append(translate.audit_entry(action, self._wall))
        if action.refused:
            return
        self.fence = max(self.fence, action.fence)
        job = self._jobs.get(str(action.target.get("job")))
        self.outbox.append(translate.outbox_row(action, self.pictures.get(action.incident, {}), self._wall, job))
        self.orders += translate.action_orders(action, self._jobs)
        if action.dry_run:
            return
        for item in action.target.get("replace") or []:
            if item.get("to") and str(item["to"]) not in self._owners:
                self._owners[str(item["to"])] = action.incident
                self.claims.append((str(item["to"]), action.incident))
        if action.action == "release" and action.target.get("node"):
            self._release(str(action.target["node"]))

    def _release(self, node: str) -> None:
        self.releases.append(node)
        self.cleared.append(node)
        self._owners.pop(node, None)

    def _write(self, write: IncidentWrite) -> None:
        self.incidents.append(write)
        self.pictures[write.incident] = write.picture
