"""What a rank prints when its own part breaks: CUDA errors, memory, data loaders, exceptions, signals, storage.

Source: CUDA runtime error strings (cudaGetErrorString), c10 CUDAException, PyTorch's DataLoader, faulthandler, glibc and the
kernel's error strings (errno), Python's traceback form. Advice lines ("CUDA kernel errors might be asynchronously reported ..") are
never records.
"""

import re
from typing import Any, Final

from outrider.parsers.train_log_rule import Gates, gate, rule

#: Exception types and texts that only say that somebody else is gone: consequences, never causes.
_SECONDARY_TYPES: Final = (
    "DistBackendError", "DistNetworkError", "DistStoreError", "DistError", "ChildFailedError", "SignalException",
        "RendezvousTimeoutError",
    "RendezvousConnectionError", "RendezvousClosedError", "BrokenPipeError", "ConnectionResetError", "ConnectionRefusedError",
    "ConnectionAbortedError", "EOFError", "ProcessExitedException", "ProcessRaisedException", "ActorDiedError", "RayActorError",
        "CalledProcessError",
)  # fmt: skip
_SECONDARY_TEXTS: Final = (
    "NCCL error", "NCCL communicator was aborted", "by peer", "gloo/transport", "Timed out waiting", "TCPStore",
        "Socket Timeout", "ncclRemoteError",
    "ncclInternalError", "ncclSystemError", "Broken pipe", "watchdog", "monitoredBarrier", "wait timeout after",
        "process group", "collective operation timeout",
    "DataLoader worker (pid(s)", "Caught signal", "terminated with the following error", "died with <Signals.SIG",
)  # fmt: skip
_DATA_TEXT: Final = re.compile(
    r"\b(?:data ?(?:set|loader|batch)?|batch|shard|sample|token(?:izer|s)?|jsonl?|parquet|tar|webdataset|arrow|record|decode)\b",
    re.IGNORECASE,
)
_STORAGE_TEXT: Final = re.compile(
    r"(?P<errno>No space left on device|Disk quota exceeded|Stale (?:NFS )?file handle|Input/output error|Transport endpoint "
    r"is not connected|"
    r"Remote I/O error|Read-only file system|Cannot send after transport endpoint shutdown|Connection timed out|Structure "
    r"needs cleaning)"
)


def _exception(data: dict[str, Any]) -> dict[str, Any] | None:
    """Sorts an exception: `kind` is user, secondary, storage, data, memory or code."""
    name, message = str(data["type"]).rpartition(".")[2], str(data.get("message") or "")
    if name.endswith("Warning"):
        return None
    if "failed to listen" in message or "ddress already in use" in message:
        data["kind"] = "code"
    elif name == "KeyboardInterrupt":
        data["kind"] = "user"
    elif name in _SECONDARY_TYPES or any(text in message for text in _SECONDARY_TEXTS):
        data["kind"] = "secondary"
    elif match := _STORAGE_TEXT.search(message):
        data["kind"], data["errno"] = "storage", match["errno"]
    elif name == "MemoryError" or "Cannot allocate memory" in message or "DefaultCPUAllocator" in message:
        data["kind"] = "memory"
    else:
        data["kind"] = "data" if _DATA_TEXT.search(message) else "code"
    data["type"] = name
    return data


def _stall(data: dict[str, Any]) -> dict[str, Any] | None:
    """A wait of a few seconds is ordinary."""
    seconds = float(data["seconds"]) * {"m": 60.0, "ms": 0.001}.get(str(data.pop("unit", "s")), 1.0)
    data["seconds"] = seconds
    return data if seconds >= STALL_SECONDS_MIN else None


#: A loader that keeps a step waiting for less than this is a slow batch, not a stall.
STALL_SECONDS_MIN: Final = 10.0

#: An exception's name stands at the start of the message: after nothing, a prefix in brackets, a time, a level or a colon.
_EXCEPTION: Final = (
    r"(?:^|[\]>|)] ?|[\d:] |\b(?:ERROR|CRITICAL|FATAL|error):? ?)"
    r"(?P<type>(?:[A-Za-z_]\w{0,60}\.){0,6}[A-Z]\w{0,60}(?:Error|Exception|Interrupt))(?:: ?(?P<message>.{0,500})|\s*$)"
)
_WAITED: Final = (
    r"(?:not ready|blocked|stall\w{0,3}|wait\w{0,3}|starv\w{1,4}|empty|timed? ?out|timeout|no (?:data|batch|sample)|took|"
    r"stuck|hung|slow)\b"
    r".{0,80}?\b(?P<seconds>\d{1,6}(?:\.\d{1,6})?) ?(?P<unit>ms|m(?=in|\b)|s(?=ec|\b))"
)

_CUDA: Final[Gates] = (
    gate(
        "out of memory",
        rule(
            "cuda_oom",
            "CUDA",
            r"CUDA (?:out of memory|error: out of memory)(?:\. Tried to allocate (?P<tried>[\d.]{1,12} \w{1,6})[. (]{1,3}GPU "
            r"(?P<gpu>\d{1,3}))?",
        ),
        rule("cuda_oom", "cudaErrorMemoryAllocation"),
        rule("cuda_oom", "OutOfMemoryError"),
        rule("cuda_oom", "Cuda failure", r"Cuda failure (?:\d{1,4} )?'out of memory'"),
    ),
    gate("OutOfMemoryError", rule("cuda_oom", "OutOfMemoryError", r"OutOfMemoryError: CUDA|OutOfMemoryError: HIP")),
    gate(
        "CUDA error",
        rule("cuda_error", "CUDA error", r"CUDA error(?: \d{1,4})?: (?!out of memory)(?P<error>[^\n]{3,160})"),
    ),
    gate("Cuda failure", rule("cuda_error", "Cuda failure", r"Cuda failure (?:\d{1,4} )?'(?P<error>[^']{1,160})'")),
    gate(
        "CUDNN_STATUS_",
        rule("cuda_error", "CUDNN_STATUS_", r"(?P<error>CUDNN_STATUS_(?:EXECUTION_FAILED|INTERNAL_ERROR|MAPPING_ERROR)\w{0,40})"),
    ),
    gate(
        "CUDA driver ",
        rule(
            "cuda_error",
            "CUDA driver",
            r"(?P<error>CUDA driver (?:initialization failed|error|version is insufficient)[^\n]{0,80})",
        ),
    ),
    gate("CUDA-capable device", rule("cuda_error", "is detected", r"(?P<error>[Nn]o CUDA-capable device is detected)")),
    gate("No CUDA GPUs", rule("cuda_error", "are available", r"(?P<error>No CUDA GPUs are available)")),
    gate(
        "CUBLAS_STATUS_",
        rule(
            "cuda_error",
            "CUBLAS_STATUS_",
            r"(?P<error>CUBLAS_STATUS_(?:EXECUTION_FAILED|INTERNAL_ERROR|NOT_INITIALIZED|ALLOC_FAILED))",
        ),
    ),
    gate(
        "cudaError",
        rule(
            "cuda_error",
            "cudaError",
            r"(?P<error>cudaError(?:ECC\w{0,20}|Illegal\w{0,20}|LaunchFailure|Assert|LaunchTimeout|NvlinkUncorrectable|"
            r"\w{0,20}Nvlink\w{0,20}|DevicesUnavailable|NoDevice|HardwareStackError|ContainedError|SystemNotReady))",
        ),
    ),
    gate(
        "Assertion `",
        rule(
            "device_assert",
            "failed",
            r"(?:block: \[[\d,]{1,30}\], thread: \[[\d,]{1,30}\] )?Assertion `(?P<message>[^`]{1,200}?)` failed",
        ),
    ),
)

_LOADER: Final[Gates] = (
    gate(
        "DataLoader",
        rule(
            "loader_killed",
            "is killed by signal",
            r"DataLoader worker \(pid (?P<worker_pid>\d{1,9})\) is killed by signal: (?P<signal>[\w ]{1,30})",
        ),
        rule("loader_exited", "exited unexpectedly", r"DataLoader worker \(pid(?:\(s\))? (?P<worker_pid>\d{1,9})"),
        rule("loader_stall", "timed out after", r"DataLoader timed out after (?P<seconds>\d{1,6}) seconds", fix=_stall),
    ),
    gate("Pin memory thread", rule("loader_exited", "exited unexpectedly")),
    *(
        gate(word, rule("loader_stall", word, _WAITED, flags=re.IGNORECASE, fix=_stall))
        for word in ("oader", "prefetch", "dataset", " batch ", "data fetch", " shard")
    ),
)

_PROCESS: Final[Gates] = (
    gate("egmentation fault", rule("segfault", "egmentation fault")),
    gate("egfault encountered", rule("segfault", "egfault encountered")),
    gate("Bus error", rule("bus_error", "Bus error")),
    gate("insufficient shared memory", rule("bus_error", "insufficient shared memory")),
    gate("Fatal Python error", rule("segfault", "Fatal Python error", r"Fatal Python error: (?P<message>.{1,80})")),
    gate(
        "corrupted ", rule("segfault", "corrupted ", r"(?:malloc\(\)|free\(\)|double free|corrupted size|corrupted double-linked)")
    ),
    # The kernel's words without the kernel's prefix: a collector or a person copied them.
    gate("Killed process", rule("host_oom", "ut of memory", r"[Oo]ut of memory: Killed process (?P<pid>\d{1,9})")),
    gate("Killed", rule("killed", "Killed", r"(?:^|[\s:\]])Killed(?:\s*$|\s+(?:python|torchrun|\S{0,40}train))")),
    gate("bad_alloc", rule("host_oom", "std::bad_alloc")),
    gate("annot allocate memory", rule("host_oom", "annot allocate memory")),
)

_STORAGE: Final[Gates] = (
    *(
        gate(word, rule("storage_error", word, r"(?P<errno>" + {"file handle": r"Stale (?:NFS )?file handle"}.get(word,
            re.escape(word)) + r")"))
        for word in (
            "No space left on device", "Disk quota exceeded", "file handle", "Input/output error",
            "Transport endpoint is not connected", "Remote I/O error", "Read-only file system",
        )
    ),
    gate(
        "heckpoint",
        rule(
            "checkpoint_failed",
            "ail",
            r"(?:[Ff]ail(?:ed|ure)? (?:to )?(?:sav\w{1,3}|writ\w{1,3}|upload\w{0,3})[^\n]{0,60}checkpoint|"
            r"checkpoint[^\n]{0,60}(?:sav\w{1,3}|writ\w{1,3}|upload) fail)",
            flags=re.IGNORECASE,
        ),
    ),
)  # fmt: skip

_EXCEPTIONS: Final[Gates] = (
    gate("Error", rule("exception", "Error", _EXCEPTION, fix=_exception)),
    gate("Exception", rule("exception", "Exception", _EXCEPTION, fix=_exception)),
    gate("KeyboardInterrupt", rule("exception", "KeyboardInterrupt", _EXCEPTION, fix=_exception)),
)

CUDA_GATES: Final[Gates] = _CUDA
ERROR_GATES: Final[Gates] = _LOADER + _PROCESS + _STORAGE + _EXCEPTIONS
