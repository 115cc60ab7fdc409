"""A finding about one part of a site (GPU, port, machine): what the readers of logs and of metrics pages agree on."""

from collections.abc import Iterable
from typing import Any

from detectors.inspect.context import Context
from detectors.inspect.findings import EvidenceLine, Finding, finding
from outrider.catalogue import FAULTS, Response


def soften(response: Response, context: Context) -> Response:
    """Where no job runs there is none to restart: the part is only kept from new work."""
    return "drain" if response == "restart" and context.no_job else response


def part_finding(
    fault: str,
    subject: dict[str, Any],
    why: str,
    evidence: Iterable[EvidenceLine],
    context: Context,
    *,
    response: Response | None = None,
    **changed: Any,
) -> Finding:
    """A finding of class `fault` with the class's first commands as next steps; `changed` is what differs from the catalogue."""
    known = FAULTS[fault]
    return finding(
        fault, subject, why, evidence=evidence, response=soften(response or known.response, context),
        next_steps=known.first_commands, **changed,
    )  # fmt: skip
