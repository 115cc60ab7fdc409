"""The finding about one GPU of a metrics page."""

from typing import Any

from detectors.inspect.context import Context
from detectors.inspect.findings import EvidenceLine, Finding
from detectors.inspect.metrics_table import Device
from detectors.inspect.part import part_finding


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
    return part_finding(fault, _subject(device, context), why, evidence, context, **changed)
