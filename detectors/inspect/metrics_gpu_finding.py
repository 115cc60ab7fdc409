"""The finding about one GPU of a metrics page."""

from typing import Any

from detectors.inspect.context import Context
from detectors.inspect.findings import EvidenceLine, Finding, finding
from detectors.inspect.metrics_table import Device
from outrider.catalogue import FAULTS, Response


def _subject(device: Device, context: Context) -> dict[str, Any]:
    names = device.names
    gpu, uuid, pci = names.get("gpu"), names.get("uuid"), names.get("pci")
    return context.gpu_subject(
        node=device.node,
        index=gpu if isinstance(gpu, int) else None,
        uuid=str(uuid) if uuid else None,
        pci=str(pci) if pci else None,
    )


def make(fault: str, device: Device, context: Context, why: str, evidence: list[EvidenceLine], **changed: Any) -> Finding:
    """A finding of a class; `changed` is what differs from the catalogue. Where no job runs, a GPU is drained and not restarted."""
    response: Response = changed.pop("response", FAULTS[fault].response)
    if response == "restart" and context.no_job:
        response = "drain"
    return finding(
        fault, _subject(device, context), why, evidence=evidence, response=response,
        next_steps=FAULTS[fault].first_commands, **changed,
    )  # fmt: skip
