"""Which GPU sits at which bus address: learnt while the GPU is well, kept for when it is not.

A GPU that fell off the bus answers nothing, so its index and UUID must be known from before. One small file, written by the NVML
collector, read by those who see bus addresses only.
"""

from pathlib import Path

import msgspec

from collectors.agent.state import replace_file
from outrider.wire import UNREADABLE

FILE = "gpus.json"


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU: the driver's index, UUID, bus address `dddd:bb:dd`, serial number."""

    gpu: int
    uuid: str
    pci: str
    serial: str = ""


def normal_pci(address: str) -> str:
    """A bus address as `dddd:bb:dd`, whatever the writer's form (`00000000:3B:00.0`, `0000:3b:00`)."""
    parts = address.lower().partition(".")[0].split(":")
    if len(parts) != 3:
        return address.lower()
    try:
        return f"{int(parts[0], 16):04x}:{parts[1]}:{parts[2]}"
    except ValueError:
        return address.lower()


class Identities:
    """The file's content, read again when it changes."""

    def __init__(self, folder: str) -> None:
        self._path = Path(folder) / FILE
        self._stamp = -1
        self._gpus: dict[str, Gpu] = {}

    def by_pci(self, pci: str | None) -> Gpu | None:
        """The GPU at a bus address, if it was ever seen well."""
        self._refresh()
        return self._gpus.get(normal_pci(pci)) if pci else None

    def by_uuid(self, uuid: str | None) -> Gpu | None:
        """The GPU of that UUID."""
        self._refresh()
        return next((gpu for gpu in self._gpus.values() if gpu.uuid == uuid), None)

    def all(self) -> list[Gpu]:
        """Every GPU ever seen well on this node, by index."""
        self._refresh()
        return sorted(self._gpus.values(), key=lambda gpu: gpu.gpu)

    def learn(self, gpus: list[Gpu]) -> None:
        """Remembers these; one that is missing now stays known, one that moved replaces what was at its address."""
        self._refresh()
        fresh = {**self._gpus, **{gpu.pci: gpu for gpu in gpus}}
        if fresh != self._gpus:
            self._gpus = fresh
            replace_file(self._path, msgspec.json.encode(list(fresh.values())))

    def _refresh(self) -> None:
        try:
            stamp = self._path.stat().st_mtime_ns
            if stamp == self._stamp:
                return
            gpus = msgspec.json.decode(self._path.read_bytes(), type=list[Gpu])
        except (OSError, *UNREADABLE):
            return
        self._stamp, self._gpus = stamp, {gpu.pci: gpu for gpu in gpus}
