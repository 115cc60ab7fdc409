"""How tensors reach the copy area: straight on the CPU; on CUDA by a stream of their own that waits for nothing of the job's.

On CUDA the training thread runs ahead of the device, so what Python calls finished may still wait behind a hung collective. An
event recorded at the end of each step tells: only when it has passed does memory hold that step. The copy uses a non-blocking
stream of high priority and host memory that was pinned when the area was opened: at the moment of a fault nothing is allocated,
and nothing waits for the device as a whole, which would hang together with it.
Source: CUDA C++ Programming Guide, sections "Streams" and "Page-Locked Host Memory".
"""

import contextlib
import ctypes
import time
from collections.abc import Iterable, Iterator
from typing import Any, Final, Protocol

from outrider.sdk.area import CopyArea
from outrider.sdk.log import warn_once
from outrider.snapshots.errors import SnapshotError

#: A copy that takes longer is given up: the device does not answer. 64 GB at 10 GB/s take 6 s.
_COPY_SECONDS_MAX: Final = 30.0


class Device(Protocol):
    """Port of the accelerator."""

    def step_ended(self) -> None:
        """On the training thread, at the end of a step."""
        ...

    def settled(self) -> bool:
        """Whether memory holds the last step that Python finished."""
        ...

    def prepare(self, area: CopyArea) -> None:
        """Once for each copy area, before it is needed."""
        ...

    def reading(self) -> contextlib.AbstractContextManager[None]:
        """Around anything that may read a number out of the device's memory (a scaler's `state_dict` does)."""
        ...

    def copy(self, pairs: Iterable[tuple[Any, Any]]) -> None:
        """Copies (target in the area, tensor of the job) pairs, and returns when the bytes are there."""
        ...


def device_of(tensors: Iterable[Any]) -> Device:
    """The device that fits the job's tensors."""
    return CudaDevice() if any(tensor.is_cuda for tensor in tensors) else CpuDevice()


class CpuDevice:
    """Memory is what Python sees."""

    def step_ended(self) -> None:
        return None

    def settled(self) -> bool:
        return True

    def prepare(self, area: CopyArea) -> None:
        return None

    def reading(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def copy(self, pairs: Iterable[tuple[Any, Any]]) -> None:
        for target, source in pairs:
            target.copy_(source)


class CudaDevice:
    """One CUDA device, the current one of the thread that attaches."""

    def __init__(self) -> None:
        import torch

        self._cuda = torch.cuda
        self._index = torch.cuda.current_device()
        self._stream = torch.cuda.Stream(self._index, priority=-1)
        self._ended: Any = torch.cuda.Event()
        self._copied: Any = torch.cuda.Event()
        self._ended.record()

    def step_ended(self) -> None:
        self._ended.record(self._cuda.current_stream(self._index))

    def settled(self) -> bool:
        with _device_errors():
            return bool(self._ended.query())

    def prepare(self, area: CopyArea) -> None:
        address = ctypes.addressof(ctypes.c_char.from_buffer(area.memory))
        code = self._cuda.cudart().cudaHostRegister(address, len(area.memory), 0)
        if int(code) != 0:
            warn_once("pinned", f"the copy area could not be pinned (CUDA error {int(code)}): copies will be slower")

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Reads wait for our own stream alone; on the default stream they would wait for whatever hangs there."""
        with _device_errors(), self._cuda.device(self._index), self._cuda.stream(self._stream):
            yield

    def copy(self, pairs: Iterable[tuple[Any, Any]]) -> None:
        with self.reading():
            for target, source in pairs:
                target.copy_(source, non_blocking=source.is_cuda)
            self._copied.record(self._stream)
            deadline = time.monotonic() + _COPY_SECONDS_MAX
            while not self._copied.query():
                if time.monotonic() > deadline:
                    raise SnapshotError("the device does not answer: the copy was given up")
                time.sleep(0.001)


@contextlib.contextmanager
def _device_errors() -> Iterator[None]:
    """A device with a sticky error (an uncorrectable memory error, an illegal access) gives nothing away any more."""
    import torch

    try:
        yield
    except getattr(torch, "AcceleratorError", RuntimeError) as error:  # the name came after torch 2.6
        raise SnapshotError(f"the device cannot be read: {' '.join(str(error).split())[:200]}") from None
