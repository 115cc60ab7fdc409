"""Tests that need torch are left out where it is not installed: it is a step of its own."""

import importlib.util

collect_ignore = [] if importlib.util.find_spec("torch") else ["test_sdk_run.py", "test_sdk_small_parts.py"]
