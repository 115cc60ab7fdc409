"""Panels and queries that several dashboards share. Build time only."""

from typing import Any, Final

from dashboards.grafana.kit import GREEN, RED, Column, Steps, grid
from dashboards.grafana.scope import RUNBOOK_URL

#: A share that should be whole.
WHOLE_IS_WELL: Final[Steps] = ((None, "red"), (0.95, "orange"), (0.99, "green"))
#: None is bad, some are well.
SOME_ARE_WELL: Final[Steps] = ((None, RED), (1, GREEN))
_KEEP: Final = "&${cluster:queryparam}&${__url_time_range}"
TO_NODE: Final = ("Node and GPU", "/d/outrider-node?var-node=${__data.fields.node}" + _KEEP)
TO_JOB: Final = ("Job", "/d/outrider-job?var-job=${__data.fields.job}" + _KEEP)
TO_NETWORK: Final = ("Network", "/d/outrider-network?var-switch=${__data.fields.switch}" + _KEEP)
TO_RUNBOOK: Final = ("Runbook", RUNBOOK_URL)
#: Columns that lead somewhere.
NODE: Final = Column("node", "node", link=TO_NODE)
JOB: Final = Column("job", "job", link=TO_JOB)
SWITCH: Final = Column("switch", "switch", link=TO_NETWORK)


def open_incidents(title: str, where: str, metric: str = "outrider_incident_open") -> Any:
    """A table of what is open. Args: where: matchers beside the clusters, with a comma before them; metric: whose series."""
    expr = f'max without (instance, witness, __name__) ({metric}{{site=~"$cluster"{where}}})'
    about = "Incidents that are confirmed and not yet over. The console has the evidence and the votes of each."
    told = (Column(name, name) for name in ("culprit", "response"))
    return grid(
        title, about, (expr,),
        (Column("fault", "fault", link=TO_RUNBOOK), *told, NODE, Column("gpu", "gpu"), Column("nic", "nic"), SWITCH, JOB),
    )  # fmt: skip


def top_nodes(
    title: str, about: str, expr: str, heading: str, unit: str = "short", steps: Steps = ((None, "text"), (1, RED))
) -> Any:
    """The nodes with the most of something that should not be there."""
    decimals = None if unit == "cps" else 0
    return grid(title, about, (f"topk(10, {expr} > 0)",), (NODE, Column("Value #A", heading, unit, decimals, steps=steps)))
