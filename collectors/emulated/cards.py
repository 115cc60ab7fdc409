"""Network cards of an emulated node: error correction as the kernel would tell it, and modules with their memory.

`collectors/ethtool_netlink.py` (`FolderCards`) reads what is written here. Layouts: see `collectors/module_pages.py`.
"""

import struct
from pathlib import Path

_MODES = {"off": 49, "rs": 50, "baser": 51, "llrs": 74}


def fec_answer(active: str = "rs", corrected: tuple[int, ...] = (), uncorrectable: tuple[int, ...] = ()) -> bytes:
    """The attributes of an answer to FEC_GET. Counters: the port's, then each lane's; empty: the driver does not count."""
    bit = _attribute(1, struct.pack("=I", _MODES[active])) + _attribute(2, active.encode() + b"\0")
    modes = _attribute(1, b"") + _attribute(2, struct.pack("=I", 75)) + _attribute(3, _attribute(1, bit))
    counters = b"".join(
        _attribute(kind, struct.pack(f"={len(values)}Q", *values)) for kind, values in ((2, corrected), (3, uncorrectable), (4, ()))
    )
    return _attribute(2, modes) + _attribute(3, b"\0") + _attribute(4, struct.pack("=I", _MODES[active])) + _attribute(5, counters)


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


class EmulatedCard:
    """A QSFP28 module in the port of an interface, and the port's error correction.

    Args:
        sysfs: root of the emulated /sys.
        interface: name; its folder is made if it is not there.
    """

    def __init__(self, sysfs: Path, interface: str) -> None:
        self._folder = sysfs / "class/net" / interface / "ethtool"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lower, self._upper = bytearray(128), bytearray(128)
        self._lower[0] = self._upper[0] = 0x11
        self._upper[92] = 0x0C  # mean light received, light sent measured
        for at, text in ((20, "EMULATED"), (40, "QSFP28-100G-SR4"), (68, f"SN-{interface}")):
            self._upper[at : at + 16] = text.encode().ljust(16)[:16]
        self.set(temperature=45.0)
        self.fec()

    def set(self, *, temperature: float, supply: float = 3.3, lanes: tuple[float, float, float] = (1e-3, 1e-3, 7e-3)) -> None:
        """What the module measures. lanes: watts received, watts sent, amperes of the laser, the same on all four."""
        struct.pack_into(">h", self._lower, 22, round(temperature * 256))
        struct.pack_into(">H", self._lower, 26, round(supply * 1e4))
        for at, value, unit in ((34, lanes[0], 1e-7), (50, lanes[1], 1e-7), (42, lanes[2], 2e-6)):
            struct.pack_into(">4H", self._lower, at, *[round(value / unit)] * 4)
        self._write("module-50-00", bytes(self._lower + self._upper))

    def complain(self, *, hot: bool = False, dark: bool = False) -> None:
        """The module's own alarms: too hot; no light on the first lane."""
        self._lower[6] = 0x80 if hot else 0
        self._lower[9] = 0x40 if dark else 0
        self._write("module-50-00", bytes(self._lower + self._upper))

    def fec(self, corrected: int = 0, uncorrectable: int = 0) -> None:
        """Blocks since boot, all on the first of four lanes."""
        self._write("fec", fec_answer("rs", (corrected, corrected, 0, 0, 0), (uncorrectable, uncorrectable, 0, 0, 0)))

    def _write(self, name: str, body: bytes) -> None:
        temporary = self._folder / f".{name}"
        temporary.write_bytes(body)
        temporary.replace(self._folder / name)
