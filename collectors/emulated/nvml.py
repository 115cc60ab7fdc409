"""Builds and drives the fake NVML library: the state of its GPUs is one small text file."""

import shutil
import subprocess
from pathlib import Path

from outrider.errors import OutriderError

SOURCE = Path(__file__).with_name("fake_nvml.c")
#: A GPU in health, in the words of `fake_nvml.c`; figures of an H100 under load.
HEALTHY: dict[str, int] = {
    "temp_c": 55, "power_mw": 600_000, "power_limit_mw": 700_000, "sm_mhz": 1980, "sm_mhz_max": 1980, "throttle": 0, "util": 99,
    "memory": 85_899_345_920, "memory_used": 60_000_000_000, "nvlinks": 18, "pcie.replay": 0, "pcie.width": 16,
    "pcie.width_max": 16, "pcie.gen": 5, "pcie.gen_max": 5, "remap.corrected": 0, "remap.uncorrected": 0, "remap.pending": 0,
    "remap.failed": 0, "retired.single_bit": 0, "retired.double_bit": 0, "field230": 0,
    "field38": 0, "field45": 0, "field52": 0, "field59": 0,
    **{f"ecc.{scope}.{kind}.{where}": 0
       for scope in ("volatile", "aggregate") for kind in ("corrected", "uncorrected") for where in ("dram", "sram")},
}  # fmt: skip


def build_library(folder: Path) -> Path:
    """Compiles `libnvidia-ml.so.1` into `folder`, unless it is there and newer than its source.

    Raises:
        OutriderError: there is no C compiler, or it fails.
    """
    target = folder / "libnvidia-ml.so.1"
    if target.exists() and target.stat().st_mtime >= SOURCE.stat().st_mtime:
        return target
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise OutriderError("the fake NVML library needs a C compiler (cc)")
    folder.mkdir(parents=True, exist_ok=True)
    command = [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Wl,-soname,libnvidia-ml.so.1", "-o", str(target), str(SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OutriderError(f"the fake NVML library cannot be built: {done.stderr.strip()[:300]}")
    return target


class FakeGpus:
    """The state of the fake library's GPUs.

    Args:
        path: the state file; its path goes to the library by OUTRIDER_FAKE_NVML.
        count: how many GPUs there are.
        node: stands in their uuids, so that those of several nodes differ.
    """

    def __init__(self, path: Path, count: int = 8, node: int = 0) -> None:
        self.path = path
        self._values: dict[str, int] = {"count": count, "node": node} | {f"gpu.{name}": value for name, value in HEALTHY.items()}
        self._write()

    def set(self, gpu: int | None = None, **values: int) -> None:
        """Sets values of one GPU (of all: None); `__` in a name stands for a point."""
        head = "gpu" if gpu is None else f"gpu{gpu}"
        self._values |= {f"{head}.{name.replace('__', '.')}": value for name, value in values.items()}
        self._write()

    def set_count(self, count: int) -> None:
        """Changes how many GPUs the driver shows."""
        self._values["count"] = count
        self._write()

    def set_init(self, code: int) -> None:
        """Changes what nvmlInit answers (0: fine, 9: no driver)."""
        self._values["init"] = code
        self._write()

    def xid(self, gpu: int, code: int) -> None:
        """Makes one XID event."""
        self.set(gpu, xid=code, xid_serial=self._values.get(f"gpu{gpu}.xid_serial", 0) + 1)

    def _write(self) -> None:
        temporary = self.path.with_name(self.path.name + ".new")
        temporary.write_text("".join(f"{name} {value}\n" for name, value in self._values.items()))
        temporary.replace(self.path)
