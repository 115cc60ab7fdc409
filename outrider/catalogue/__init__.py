"""The one catalogue: every fault class is one entry, and all that is said or done about it comes from here."""

from outrider.catalogue.faults import FAULTS, RESPONSES, Culprit, FaultClass, Repair, Response, fault

__all__ = ["FAULTS", "RESPONSES", "Culprit", "FaultClass", "Repair", "Response", "fault"]
