"""What the kernel tells of a network card over ethtool netlink: forward error correction, and the pages of its module.

Source: the kernel's Documentation/networking/ethtool-netlink.rst (FEC_GET with statistics, MODULE_EEPROM_GET) and
include/uapi/linux/ethtool_netlink.h, genetlink.h. Rights: root for a module's pages, none for error correction.
"""

import errno
import os
import socket
import struct
from pathlib import Path
from typing import Protocol

import msgspec

_MESSAGE = struct.Struct("=IHHII")
_GENERIC = struct.Struct("=BBH")
_ATTRIBUTE = struct.Struct("=HH")
_ERROR = 2
_REQUEST = 1
_CONTROL_ID, _GET_FAMILY, _FAMILY_ID, _FAMILY_NAME = 0x10, 3, 1, 2
_FEC_GET, _EEPROM_GET = 29, 31
_HEADER_NAME, _HEADER_FLAGS, _FLAG_STATISTICS = 2, 3, 1 << 2
_NESTED, _KIND = 0x8000, 0x3FFF
#: A driver that reads a module over a slow bus takes some 100 ms a page; a dead one is the supervisor's matter.
ANSWER_SECONDS = 3.0
#: Half a page: the most that one question may ask for.
HALF_BYTES = 128
#: ETHTOOL_LINK_MODE_FEC_*_BIT -> what people call it.
_MODES = {49: "off", 50: "rs", 51: "baser", 74: "llrs"}
_STATISTICS = {2: "corrected_blocks", 3: "uncorrectable_blocks", 4: "corrected_bits"}
LANES_MAX = 16


class Fec(msgspec.Struct, frozen=True, kw_only=True):
    """Forward error correction of a port. `active`: the mode in use, empty if the driver does not say; `totals`: counter -> value
    of the port, `lanes`: counter -> values by lane; only what the driver counts."""

    active: str = ""
    configured: tuple[str, ...] = ()
    totals: dict[str, int] = {}
    lanes: dict[str, tuple[int, ...]] = {}


class Cards(Protocol):
    """Who can be asked about cards. Both questions raise OSError: EOPNOTSUPP where the driver cannot tell; may block."""

    def fec(self, interface: str) -> Fec: ...

    def module(self, interface: str, page: int, offset: int, address: int = 0x50) -> bytes: ...

    def close(self) -> None: ...


class KernelCards:
    """Asks the kernel; one socket, opened at the first question."""

    def __init__(self) -> None:
        self._channel: socket.socket | None = None
        self._family = self._sequence = 0

    def fec(self, interface: str) -> Fec:
        """Raises OSError: the driver has none, or cannot tell."""
        header = _text(_HEADER_NAME, interface) + _number(_HEADER_FLAGS, _FLAG_STATISTICS)
        return parse_fec(self._ask(_FEC_GET, _attribute(1 | _NESTED, header)))

    def module(self, interface: str, page: int, offset: int, address: int = 0x50) -> bytes:
        """Half a page of the module's memory. Raises OSError: there is no module, or the driver cannot read it."""
        body = _attribute(1 | _NESTED, _text(_HEADER_NAME, interface))
        body += _number(2, offset) + _number(3, HALF_BYTES)
        body += b"".join(_attribute(kind, bytes([value])) for kind, value in ((4, page), (5, 0), (6, address)))
        return attributes(self._ask(_EEPROM_GET, body)).get(7, b"")

    def close(self) -> None:
        """Gives the socket back."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _ask(self, command: int, body: bytes) -> bytes:
        if self._channel is None:
            self._channel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 16)
            self._channel.settimeout(ANSWER_SECONDS)
            found = attributes(self._exchange(_CONTROL_ID, _GET_FAMILY, _text(_FAMILY_NAME, "ethtool"))).get(_FAMILY_ID, b"")
            if len(found) != 2:
                raise OSError(errno.EOPNOTSUPP, "the kernel has no ethtool netlink")
            self._family = int.from_bytes(found, "little")
        return self._exchange(self._family, command, body)

    def _exchange(self, family: int, command: int, body: bytes) -> bytes:
        assert self._channel is not None
        self._sequence += 1
        size = _MESSAGE.size + _GENERIC.size + len(body)
        try:
            self._channel.send(_MESSAGE.pack(size, family, _REQUEST, self._sequence, 0) + _GENERIC.pack(command, 1, 0) + body)
            while True:
                answer = parse_answer(self._channel.recv(65536), self._sequence)
                if answer is not None:
                    return answer
        except TimeoutError:
            self.close()  # a late answer must not be taken for the next one
            raise


class FolderCards:
    """Stands for the kernel on an emulated node: `<root>/class/net/<interface>/ethtool/` holds `fec` (the attributes of an answer)
    and `module-<address>-<page>` (256 bytes; a page above 0 has its upper half only)."""

    def __init__(self, root: Path) -> None:
        self._net = root / "class/net"

    def fec(self, interface: str) -> Fec:
        return parse_fec(self._read(interface, "fec"))

    def module(self, interface: str, page: int, offset: int, address: int = 0x50) -> bytes:
        return self._read(interface, f"module-{address:02x}-{page:02x}")[offset : offset + HALF_BYTES]

    def close(self) -> None:
        """Nothing is held open."""

    def _read(self, interface: str, name: str) -> bytes:
        try:
            return (self._net / interface / "ethtool" / name).read_bytes()
        except FileNotFoundError:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP)) from None


def parse_answer(datagram: bytes, sequence: int) -> bytes | None:
    """The attributes of the answer to question `sequence`; None if the datagram holds none. Raises OSError: the kernel's error."""
    at = 0
    while at + _MESSAGE.size <= len(datagram):
        size, kind, _, number, _ = _MESSAGE.unpack_from(datagram, at)
        if size < _MESSAGE.size or at + size > len(datagram):
            raise OSError(errno.EBADMSG, "an answer cut short")
        body = datagram[at + _MESSAGE.size : at + size]
        if number == sequence:
            if kind == _ERROR and len(body) >= 4:
                code = -int.from_bytes(body[:4], "little", signed=True)
                raise OSError(code or errno.ENODATA, os.strerror(code) if code else "no answer")
            return body[_GENERIC.size :]
        at += (size + 3) & ~3
    return None


def attributes(body: bytes) -> dict[int, bytes]:
    """Attribute -> value; of repeated ones the last. What is cut short is passed over."""
    found, at = {}, 0
    while at + _ATTRIBUTE.size <= len(body):
        size, kind = _ATTRIBUTE.unpack_from(body, at)
        if size < _ATTRIBUTE.size or at + size > len(body):
            break
        found[kind & _KIND] = body[at + _ATTRIBUTE.size : at + size]
        at += (size + 3) & ~3
    return found


def parse_fec(body: bytes) -> Fec:
    """The answer to FEC_GET. A counter that the driver does not have is absent, never zero."""
    found = attributes(body)
    active = _MODES.get(int.from_bytes(found.get(4, b""), "little"), "")
    configured = ["auto"] if any(found.get(3, b"")) else []
    configured += _bits(attributes(found.get(2, b"")))
    totals, lanes = {}, {}
    statistics = attributes(found.get(5, b""))
    for kind, name in _STATISTICS.items():
        raw = statistics.get(kind, b"")
        values = struct.unpack(f"={len(raw) // 8}Q", raw[: len(raw) // 8 * 8])[: LANES_MAX + 1]
        if values:
            totals[name] = values[0]
        if len(values) > 1:
            lanes[name] = values[1:]
    return Fec(active=active, configured=tuple(configured), totals=totals, lanes=lanes)


def _bits(bitset: dict[int, bytes]) -> list[str]:
    """Modes of a bitset, in the form of a list of bits (3) or of one number (4)."""
    modes, body, at = [], bitset.get(3, b""), 0
    while at + _ATTRIBUTE.size <= len(body):
        size = _ATTRIBUTE.unpack_from(body, at)[0]
        if size < _ATTRIBUTE.size:
            break
        number = int.from_bytes(attributes(body[at + _ATTRIBUTE.size : at + size]).get(1, b"\xff\xff"), "little")
        modes.append(_MODES.get(number, ""))
        at += (size + 3) & ~3
    packed = int.from_bytes(bitset.get(4, b""), "little")
    modes += [mode for bit, mode in _MODES.items() if packed >> bit & 1]
    return [mode for mode in modes if mode]


def _attribute(kind: int, value: bytes) -> bytes:
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind) + value + bytes(-len(value) % 4)


def _number(kind: int, value: int) -> bytes:
    return _attribute(kind, struct.pack("=I", value))


def _text(kind: int, value: str) -> bytes:
    return _attribute(kind, value.encode()[:15] + b"\0")
