"""The training SDK: `attach`, `with run.step():`, and what runs beside them inside the training process.

Standard library only; torch is imported by `attach`, not before. `page` and `area` are the memory shared with the agent.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outrider.sdk.run import Run, attach

__all__ = ["Run", "attach"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from outrider.sdk import run

        return getattr(run, name)
    raise AttributeError(f"module 'outrider.sdk' has no attribute {name!r}")
