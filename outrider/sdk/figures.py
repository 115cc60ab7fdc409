"""Figures that a script reports, as plain numbers; nothing here waits for a device."""

import math
from typing import Any

from outrider.sdk.log import warn_once


def plain(name: str, value: Any) -> float:
    """The number that `value` is, or NaN, which means not told.

    A tensor of one number in the CPU's memory is read. To read one on a device would hold up the training until the device has come
    so far, so it is refused; the log says so once.
    """
    if type(value) is float:
        return value
    device = getattr(value, "device", None)
    if getattr(device, "type", "cpu") != "cpu":
        warn_once("device", f"step.report({name}=..): a tensor on {device} is not read, that would make the training wait; "
                  f"report a plain number, {name}.item() where the script waits for it anyway")  # fmt: skip
        return math.nan
    try:
        return float(value.detach() if hasattr(value, "detach") else value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        warn_once(f"figure {name}", f"step.report({name}=..): a {type(value).__name__} is not one number: passed over")
        return math.nan
