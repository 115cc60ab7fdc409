"""A training job installs nothing for Outrider: the ground floor and the SDK need the standard library alone."""

import subprocess
import sys
from pathlib import Path

import outrider

PROGRAM = """
import pkgutil, sys
sys.path.insert(0, {repository!r})
import outrider, outrider.sdk, outrider.snapshots
for package in (outrider.sdk, outrider.snapshots):
    for module in pkgutil.iter_modules(package.__path__):
        __import__(f"{{package.__name__}}.{{module.name}}")
assert outrider.attach and outrider.Run
outside = sorted({{name.partition(".")[0] for name in sys.modules}} - set(sys.stdlib_module_names) - {{"outrider", "__main__"}})
assert not outside, outside
try:
    outrider.attach()
except ModuleNotFoundError as error:
    assert error.name == "torch", error
"""


def test_everything_of_the_sdk_imports_without_a_single_package():
    repository = str(Path(outrider.__file__).parent.parent)
    command = [sys.executable, "-I", "-S", "-c", PROGRAM.format(repository=repository)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
