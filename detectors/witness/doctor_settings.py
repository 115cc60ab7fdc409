"""What `outrider doctor` reads in the settings alone: mode, who carries orders out, secrets, how many witnesses."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from detectors.witness.findings import Finding, Patient, State
from outrider.config.alerts import AlertsConfig
from outrider.config.security import SecuritySection
from outrider.config.site import SiteSection
from outrider.config.witness import WitnessSection
from outrider.errors import InputError

#: The order without which a mode that acts does nothing for a job.
RESTART: Final = "job.restart.requested"


def mode(patient: Patient) -> Iterator[Finding]:
    """How far Outrider goes by itself."""
    name = patient.config.get(SiteSection).mode
    said = {
        "observe": "records only what it would do",
        "advise": "a person decides",
        "act": "acts by itself within the policy's limits",
    }
    yield Finding(check="mode", state="ok", text=f"{name}: {said[name]}")


def targets(patient: Patient) -> Iterator[Finding]:
    """In a mode that acts, whether anything takes the order to restart a job."""
    name = patient.config.get(SiteSection).mode
    if name == "observe":
        return
    alerts = patient.config.get(AlertsConfig)
    carriers: tuple[Any, ...] = (*alerts.targets, *alerts.slurm, *alerts.kubernetes, *alerts.hosts, *alerts.commands)
    takers = [target.name for target in carriers if not target.types or RESTART in target.types]
    if takers:
        yield Finding(check="targets", state="ok", text=f"orders to restart a job go to {', '.join(takers)}")
    else:
        yield Finding(
            check="targets", state="warn", text=f"mode {name}, but nothing in [alerts] takes {RESTART}: no job is restarted"
        )


def secret_files(patient: Patient) -> Iterator[Finding]:
    """The secrets of a node, and those of people where this machine has them (a node has none)."""
    security = patient.config.get(SecuritySection)
    files = [("heartbeat key", security.heartbeat_keys), ("agents' token", security.agent_tokens)]
    if security.operator_token_file and Path(security.operator_token_file).exists():
        files.append(("operators' token", security.operator_tokens))
    if security.viewer_token_file and Path(security.viewer_token_file).exists():
        files.append(("viewers' token", security.viewer_tokens))
    for what, read in files:
        try:
            read()
        except InputError as error:
            yield Finding(check="secrets", state="fail", text=f"{what}: {error}")
        else:
            yield Finding(check="secrets", state="ok", text=f"{what} is there and only its owner reads it")


def witnesses(patient: Patient) -> Iterator[Finding]:
    """How many there are, and what they share."""
    section = patient.config.get(WitnessSection)
    count = len(section.members)
    if count == 0:
        yield Finding(check="witnesses", state="fail", text="[witness] names none")
        return
    if count < 3 or count % 2 == 0:
        yield Finding(
            check="witnesses", state="warn", text=f"{count} witnesses: three or five bear one or two failures; others add none"
        )
    for vantage, names in section.shared_vantages().items():
        state: State = "ok" if section.shared_vantage_ok else "warn"
        yield Finding(
            check="witnesses", state=state, text=f"{', '.join(names)} share one vantage point ({vantage}) and fall together"
        )
