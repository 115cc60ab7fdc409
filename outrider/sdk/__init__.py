"""The training SDK: `attach`, `with run.step():`, and what runs beside them inside the training process.

Standard library only; torch is imported by `attach`, not before. `page` and `area` are the memory shared with the agent.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outrider.sdk.attaching import attach
    from outrider.sdk.run import Run

__all__ = ["Run", "attach"]


def __getattr__(name: str) -> Any:
    if name == "attach":
        from outrider.sdk.attaching import attach

        return attach
    if name == "Run":
        from outrider.sdk.run import Run

        return Run
    raise AttributeError(f"module 'outrider.sdk' has no attribute {name!r}")
