"""Dumps: flight records, stack dumps and NCCL RAS answers. One judge, `judge(sources, context)`."""

from detectors.inspect.dump.judge import judge

__all__ = ["judge"]
