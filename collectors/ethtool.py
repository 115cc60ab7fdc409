"""A network driver's own statistics, by the SIOCETHTOOL ioctl. Source: linux/ethtool.h (ETHTOOL_GSSET_INFO, _GSTRINGS, _GSTATS)."""

import array
import fcntl
import socket
import struct

_SIOCETHTOOL = 0x8946
_GSTRINGS, _GSTATS, _GSSET_INFO = 0x1B, 0x1D, 0x37
_SET_STATS = 1
_NAME_BYTES = 32
#: mlx5 has about 1,500 with all queues; more is a broken answer.
_STATS_MAX = 16_384


def read_statistics(interface: str) -> dict[str, int]:
    """Statistic -> value; empty where the driver has none. May block on a dying device.

    Raises:
        OSError: there is no such interface.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        count = _count(channel, interface)
        if not 0 < count <= _STATS_MAX:
            return {}
        names = array.array("B", struct.pack("=III", _GSTRINGS, _SET_STATS, count) + bytes(_NAME_BYTES * count))
        values = array.array("B", struct.pack("=II", _GSTATS, count) + bytes(8 * count))
        _ask(channel, interface, names)
        _ask(channel, interface, values)
    raw = names.tobytes()[12:]
    numbers = struct.unpack_from(f"={count}Q", values.tobytes(), 8)
    found = {}
    for place, number in enumerate(numbers):
        name = raw[place * _NAME_BYTES : (place + 1) * _NAME_BYTES].split(b"\0", 1)[0].decode("ascii", "replace").strip()
        if name:
            found[name] = number
    return found


def _count(channel: socket.socket, interface: str) -> int:
    request = array.array("B", struct.pack("=IIQI", _GSSET_INFO, 0, 1 << _SET_STATS, 0))
    try:
        _ask(channel, interface, request)
    except OSError as error:
        if error.errno == 95:  # the driver has no statistics of its own
            return 0
        raise
    mask, count = struct.unpack_from("=QI", request.tobytes(), 8)
    return int(count) if mask else 0


def _ask(channel: socket.socket, interface: str, buffer: "array.array[int]") -> None:
    address, _ = buffer.buffer_info()
    request = struct.pack("16sP16x", interface.encode()[:15], address)
    fcntl.ioctl(channel.fileno(), _SIOCETHTOOL, request)
