"""What a cable's or an optical module's memory says: temperature, supply, laser bias, light sent and received, and its own alarms.

Pure. Three layouts, told apart by the first byte: SFF-8472 (SFP), SFF-8636 (QSFP, QSFP28), CMIS (QSFP-DD, OSFP, and QSFP by CMIS).
What a module does not measure, or corrects by constants that are no numbers, is absent, never zero. Source: SFF-8024 (identifiers),
SFF-8472 12.4, SFF-8636 2.10a, OIF CMIS 5.2.
"""

import math
import struct
from collections.abc import Callable

import msgspec

#: Reads half a page of the module: (page, offset 0 or 128, address on its bus) -> 128 bytes.
ReadHalf = Callable[[int, int, int], bytes]

KINDS = {
    0x03: "SFP", 0x0B: "DWDM-SFP", 0x0C: "QSFP", 0x0D: "QSFP+", 0x11: "QSFP28", 0x18: "QSFP-DD", 0x19: "OSFP", 0x1B: "DSFP",
    0x1E: "QSFP-CMIS", 0x1F: "SFP-DD", 0x20: "SFP-CMIS",
}  # fmt: skip
_SFP, _QSFP = frozenset({0x03, 0x0B}), frozenset({0x0C, 0x0D, 0x11})
_LEVELS = ("high_alarm", "low_alarm", "high_warning", "low_warning")
_HALF, _LANES = 128, 8
_BIAS_AMPERES, _POWER_WATTS, _VOLTS = 2e-6, 1e-7, 1e-4


class Module(msgspec.Struct, frozen=True, kw_only=True):
    """One module, in degrees Celsius, volts, amperes and watts; None and empty: it does not measure that. Lists are by lane.

    `flags`: what it complains of, as `temperature_high_alarm`; with lanes as `receive_power_low_warning`. They are latched in the
    module until they are read: a flag of one reading may be old, one of two readings running stands."""

    kind: str
    vendor: str = ""
    part: str = ""
    serial: str = ""
    temperature: float | None = None
    supply: float | None = None
    bias: tuple[float, ...] = ()
    sent: tuple[float, ...] = ()
    received: tuple[float, ...] = ()
    flags: tuple[str, ...] = ()


def read_module(half: ReadHalf) -> Module:
    """Reads what it needs, and no more: each half page may take 100 ms.

    Raises:
        OSError: it cannot be read.
        ValueError: what is read makes no sense.
    """
    lower = _whole(half(0, 0, 0x50))
    kind = lower[0]
    if kind in _SFP:
        return _sfp(lower, half)
    if kind in _QSFP:
        return _qsfp(lower, half)
    if kind in KINDS:
        return _cmis(lower, half)
    raise ValueError(f"a module of unknown kind 0x{kind:02x}")


def _sfp(base: bytes, half: ReadHalf) -> Module:
    """SFF-8472: identity at 0x50, diagnostics at 0x51 where byte 92 says that there are some."""
    plain = Module(kind=KINDS[base[0]], vendor=_name(base, 20), part=_name(base, 40), serial=_name(base, 68))
    if not base[92] & 0x40:
        return plain
    more = _whole(half(0, 0, 0x51))
    temperature, supply, bias, sent, received = struct.unpack_from(">hHHHH", more, 96)
    if base[92] & 0x10:  # raw readings, to be corrected by constants of the module
        slopes = struct.unpack_from(">HhHhHhHh", more, 76)
        bias, sent, temperature, supply = (
            raw * slopes[2 * place] / 256 + slopes[2 * place + 1] for place, raw in enumerate((bias, sent, temperature, supply))
        )
        factors = struct.unpack_from(">5f", more, 56)
        received = sum(factor * received ** (4 - place) for place, factor in enumerate(factors))
    flags = []
    for what, place, shift in (("temperature", 0, 6), ("supply", 0, 4), ("bias", 0, 2), ("transmit_power", 0, 0),
                               ("receive_power", 1, 6)):  # fmt: skip
        alarms, warnings = more[112 + place] >> shift & 3, more[116 + place] >> shift & 3
        flags += _levels(what, alarms << 2 | warnings)
    return msgspec.structs.replace(
        plain, temperature=temperature / 256, supply=supply * _VOLTS, bias=(bias * _BIAS_AMPERES,), sent=(sent * _POWER_WATTS,),
        received=(received * _POWER_WATTS,) if math.isfinite(received) else (), flags=tuple(flags),
    )  # fmt: skip


def _qsfp(lower: bytes, half: ReadHalf) -> Module:
    """SFF-8636: all monitors are in the lower page; the upper one has names and what is measured."""
    upper = _whole(half(0, 128, 0x50))
    plain = Module(kind=KINDS[lower[0]], vendor=_name(upper, 20), part=_name(upper, 40), serial=_name(upper, 68))
    supply = struct.unpack_from(">H", lower, 26)[0]
    if not supply:  # a module with power always measures some: it has no monitors (a copper cable)
        return plain
    received, bias, sent = (struct.unpack_from(">4H", lower, at) for at in (34, 42, 50))
    copper = upper[147 - _HALF] >> 4 >= 0xA
    flags = [*_levels("temperature", lower[6] >> 4), *_levels("supply", lower[7] >> 4)]
    for what, at in (("receive_power", 9), ("bias", 11), ("transmit_power", 13)):
        nibbles = [lower[at] >> 4, lower[at] & 15, lower[at + 1] >> 4, lower[at + 1] & 15]
        flags += _levels(what, nibbles[0] | nibbles[1] | nibbles[2] | nibbles[3])
    return msgspec.structs.replace(
        plain, temperature=struct.unpack_from(">h", lower, 22)[0] / 256, supply=supply * _VOLTS,
        bias=() if copper else tuple(one * _BIAS_AMPERES for one in bias),
        sent=tuple(one * _POWER_WATTS for one in sent) if upper[220 - _HALF] & 0x04 and not copper else (),
        received=() if copper else tuple(one * _POWER_WATTS for one in received), flags=tuple(flags),
    )  # fmt: skip


def _cmis(lower: bytes, half: ReadHalf) -> Module:
    """CMIS: what is measured stands on page 01h, lanes on page 11h; a module of one page has neither."""
    upper = _whole(half(0, 128, 0x50))
    plain = Module(kind=KINDS[lower[0]], vendor=_name(upper, 1), part=_name(upper, 20), serial=_name(upper, 38))
    if lower[2] & 0x80:
        return plain
    told = _whole(half(0x01, 128, 0x50))
    module_told, lanes_told = told[159 - _HALF], told[160 - _HALF]
    flags = []
    if module_told & 1:
        flags += _reversed_levels("temperature", lower[9] & 15)
    if module_told & 2:
        flags += _reversed_levels("supply", lower[9] >> 4)
    values: dict[str, tuple[float, ...]] = {"bias": (), "sent": (), "received": ()}
    if lanes_told & 7:
        page = _whole(half(0x11, 128, 0x50))
        there = [lane for lane in range(_LANES) if not upper[210 - _HALF] >> lane & 1]
        multiplier = {0: 1, 1: 2, 2: 4}.get(lanes_told >> 3 & 3, 1)
        for name, what, bit, at, unit, flag in (
            ("bias", "bias", 0, 170, _BIAS_AMPERES * multiplier, 143), ("sent", "transmit_power", 1, 154, _POWER_WATTS, 139),
            ("received", "receive_power", 2, 186, _POWER_WATTS, 149),
        ):  # fmt: skip
            if lanes_told >> bit & 1:
                raw = struct.unpack_from(f">{_LANES}H", page, at - _HALF)
                values[name] = tuple(raw[lane] * unit for lane in there)
                flags += [f"{what}_{level}" for place, level in enumerate(_LEVELS) if page[flag - _HALF + place]]
    return msgspec.structs.replace(
        plain, **values, flags=tuple(flags),
        temperature=struct.unpack_from(">h", lower, 14)[0] / 256 if module_told & 1 else None,
        supply=struct.unpack_from(">H", lower, 16)[0] * _VOLTS if module_told & 2 else None,
    )  # fmt: skip


def _levels(what: str, bits: int) -> list[str]:
    """Four flags, the highest bit first."""
    return [f"{what}_{level}" for place, level in enumerate(_LEVELS) if bits >> (3 - place) & 1]


def _reversed_levels(what: str, bits: int) -> list[str]:
    return [f"{what}_{level}" for place, level in enumerate(_LEVELS) if bits >> place & 1]


def _whole(half: bytes) -> bytes:
    if len(half) < _HALF:
        raise ValueError(f"a half page of {len(half)} bytes")
    return half[:_HALF]


def _name(half: bytes, at: int) -> str:
    """A name of 16 characters; what cannot be printed is left out."""
    text = half[at : at + 16].decode("ascii", "replace")
    return "".join(one for one in text if one.isprintable() and one != "\ufffd").strip()
