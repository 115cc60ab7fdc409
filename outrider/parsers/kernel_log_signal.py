"""What the readers of kernel lines share: how a line becomes a signal."""

from collections.abc import Callable
from typing import Any

from outrider.signals import Signal

Reader = Callable[[str], Signal | None]


def make_signal(kind: str, text: str, value: float | int | str | None = None, *, data: dict[str, Any], **keys: Any) -> Signal:
    """A signal read from the kernel log; `t` is 0, the caller knows the time."""
    return Signal(t=0.0, kind=kind, value=value, data=data, text=text, source="kernel_log", **keys)


def kernel_signal(event: str, text: str, *, data: dict[str, Any] | None = None, **keys: Any) -> Signal:
    """A signal of kind `kernel`."""
    return make_signal("kernel", text, data={"event": event, **(data or {})}, **keys)
