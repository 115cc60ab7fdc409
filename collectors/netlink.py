"""The kernel's own word on network interfaces: link messages of rtnetlink, the moment they happen. Source: rtnetlink(7)."""

import socket
import struct
from typing import NamedTuple

_NEWLINK, _DELLINK = 16, 17
_GROUP_LINK = 1
_IFNAME, _OPERSTATE, _CARRIER = 3, 16, 33
_MESSAGE = struct.Struct("=IHHII")
_INTERFACE = struct.Struct("=BxHiII")
_ATTRIBUTE = struct.Struct("=HH")
#: IF_OPER_*: what means that the link is down; unknown (0) is what virtual interfaces say while they work.
_DOWN = frozenset({1, 2, 3})
_FLAG_UP, _FLAG_LOWER_UP = 0x1, 0x10000


class LinkChange(NamedTuple):
    """One message about an interface. `up`: it can carry traffic; `gone`: the interface itself was taken away."""

    name: str
    up: bool
    gone: bool = False


def open_link_socket() -> socket.socket:
    """A socket on which link messages come. Raises OSError."""
    channel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
    try:
        channel.bind((0, _GROUP_LINK))
    except OSError:
        channel.close()
        raise
    return channel


def parse_links(datagram: bytes) -> list[LinkChange]:
    """The link messages of one datagram; what makes no sense is passed over."""
    changes, at = [], 0
    while at + _MESSAGE.size <= len(datagram):
        size, kind, *_ = _MESSAGE.unpack_from(datagram, at)
        if size < _MESSAGE.size or at + size > len(datagram):
            break
        if kind in (_NEWLINK, _DELLINK) and size >= _MESSAGE.size + _INTERFACE.size:
            change = _parse_one(datagram[at + _MESSAGE.size : at + size], gone=kind == _DELLINK)
            if change is not None:
                changes.append(change)
        at += (size + 3) & ~3
    return changes


def _parse_one(body: bytes, *, gone: bool) -> LinkChange | None:
    _, _, _, flags, _ = _INTERFACE.unpack_from(body)
    name, operstate, carrier = "", 0, 1
    at = _INTERFACE.size
    while at + _ATTRIBUTE.size <= len(body):
        size, kind = _ATTRIBUTE.unpack_from(body, at)
        if size < _ATTRIBUTE.size or at + size > len(body):
            break
        value = body[at + _ATTRIBUTE.size : at + size]
        if kind == _IFNAME:
            name = value.rstrip(b"\0").decode("ascii", "replace")
        elif kind == _OPERSTATE and value:
            operstate = value[0]
        elif kind == _CARRIER and value:
            carrier = value[0]
        at += (size + 3) & ~3
    if not name:
        return None
    up = bool(flags & _FLAG_UP) and bool(flags & _FLAG_LOWER_UP) and operstate not in _DOWN and bool(carrier)
    return LinkChange(name, up and not gone, gone)
