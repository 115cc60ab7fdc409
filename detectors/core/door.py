"""The door of the core: what a signal carries has the type that the rules expect, or it is left out and counted.

Signals come from many collectors, from traces and from programs that are not ours. A text where a number belongs must not
stop a witness, and a rule should not have to ask. Only keys that a rule reads are looked at; a key costs 0.1 microseconds.
"""

from typing import Any, Final

import msgspec

from outrider.signals import Signal

#: A number beyond this is none; it also keeps out NaN and infinity, which compare false.
LARGEST: Final = 1e300
Types = frozenset[type]
_NUMBER: Final[Types] = frozenset({int, float})
_WHOLE: Final[Types] = frozenset({int})
_TEXT: Final[Types] = frozenset({str})
_MAYBE_TEXT: Final[Types] = frozenset({str, type(None)})
_NAME: Final[Types] = frozenset({str, int})
_TABLE: Final[Types] = frozenset({dict})
_FLAG: Final[Types] = frozenset({bool, int, float, str, type(None)})
#: The numbers of training itself: NaN and infinity are what the rules look for, and some programs write them as text.
_LOSS: Final[Types] = frozenset({int, float, str, type(None)})
_LIST: Final[Types] = frozenset({list, tuple})

_EVERY: Final[dict[str, Types]] = {"attempt": _WHOLE, "observed_s": _NUMBER, "boot": _NAME}
_DATA: Final[dict[str, dict[str, Types]]] = {
    "heartbeat": {"seq": _NUMBER, "start": _NUMBER, "boot": _NAME},
    "probe": {"answer": _TEXT, "by": _TEXT},
    "step": {
        "step_s": _NUMBER, "age_s": _NUMBER, "compute_s": _NUMBER, "wait_s": _NUMBER, "data_s": _NUMBER, "loss": _LOSS,
        "grad_norm": _LOSS, "lr": _LOSS, **_EVERY,
    },
    "xid": {"pci": _TEXT, "uuid": _TEXT, "registers": _LIST, "recovery": _TABLE, "reset": _TABLE, **_EVERY},
    "gpu_state": {"power_w": _NUMBER, "power_limit_w": _NUMBER, "util": _NUMBER, "throttle": _LIST, "sm_mhz": _NUMBER,
                  "sm_mhz_max": _NUMBER, "temp_c": _NUMBER, **_EVERY},
    "gpu_count": {"expected": _NUMBER, **_EVERY},
    "link": {"rate_gbps": _NUMBER, "rate_max_gbps": _NUMBER, "state": _TEXT, "peer_node": _TEXT, "peer_nic": _TEXT, **_EVERY},
    "port_counters": {"module_alarms": _LIST, **_EVERY},
    "storage": {"seconds": _NUMBER, "error": _MAYBE_TEXT, "ok": _FLAG, "server": _TEXT, **_EVERY},
    "kernel": {"event": _TEXT, **_EVERY},
    "collective_timeout": {"last_enqueued": _NUMBER, "last_completed": _NUMBER, "elapsed_s": _NUMBER, **_EVERY},
    "collective_error": {"peer_rank": _WHOLE, "device": _TEXT, **_EVERY},
    "process_exit": {"reason": _MAYBE_TEXT, **_EVERY},
}  # fmt: skip
_DATA["sxid"] = _DATA["xid"]
#: Kinds whose `value` must be a finite number, or nothing at all.
_NUMERIC: Final = frozenset(
    {"step", "xid", "sxid", "gpu_count", "driver_call", "process_exit", "snapshot", "job", "reclaim", "ecc", "row_remap"}
)


def admit(signal: Signal) -> tuple[Signal | None, int]:
    """The signal as the rules may read it, and how many of its parts were left out; None if it says nothing then."""
    value = signal.value
    if signal.kind in _NUMERIC and value is not None and not _is_number(value):
        return None, 1
    wanted = _DATA.get(signal.kind, _EVERY)
    bad = None
    for key, item in signal.data.items():
        kinds = wanted.get(key)
        if kinds is not None and (type(item) not in kinds or (kinds is _NUMBER and not -LARGEST < item < LARGEST)):
            bad = [key] if bad is None else [*bad, key]
    if signal.kind == "job":
        bad = [*(bad or ()), *_bad_shape(signal.data)]
    if not bad:
        return signal, 0
    kept = {key: item for key, item in signal.data.items() if key not in bad}
    return msgspec.structs.replace(signal, data=kept), len(bad)


def _is_number(value: Any) -> bool:
    return type(value) in _NUMBER and -LARGEST < value < LARGEST


def _bad_shape(data: dict[str, Any]) -> list[str]:
    """Keys of a `job` signal that do not have the shape of slots, groups or limits."""
    bad = []
    slots, groups, limits = data.get("slots"), data.get("groups"), data.get("limits")
    if slots is not None and not (isinstance(slots, list | tuple) and all(_is_slot(slot) for slot in slots)):
        bad.append("slots")
    if groups is not None and not (isinstance(groups, dict) and all(_is_groups(one) for one in groups.values())):
        bad.append("groups")
    if limits is not None and not (isinstance(limits, dict) and all(_is_number(one) and one > 0 for one in limits.values())):
        bad.append("limits")
    if not isinstance(data.get("synchronous", True), bool):
        bad.append("synchronous")
    return bad


def _is_slot(slot: Any) -> bool:
    return isinstance(slot, list | tuple) and len(slot) == 2 and isinstance(slot[0], str) and type(slot[1]) is int


def _is_groups(groups: Any) -> bool:
    return isinstance(groups, list | tuple) and all(
        isinstance(group, list | tuple) and all(type(rank) is int for rank in group) for group in groups
    )
