"""Training logs: one judge, `judge(sources, context)`. See `judge.py` for the order in which causes are looked for."""

from detectors.inspect.train_log.judge import judge

__all__ = ["judge"]
