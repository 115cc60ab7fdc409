"""Outrider's ground floor, and the two lines a training script needs: `attach` and `step`.

Importing this package needs the standard library only; torch is imported where the SDK meets it.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outrider.sdk import Run, attach

__version__ = "0.1.0"
__all__ = ["Run", "__version__", "attach"]


def __getattr__(name: str) -> Any:
    if name in ("attach", "Run"):
        from outrider import sdk

        return getattr(sdk, name)
    raise AttributeError(f"module 'outrider' has no attribute {name!r}")
