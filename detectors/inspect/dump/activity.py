"""What a process is doing, by its stack: waiting in a collective, in storage, in the GPU driver, for data, compiling, ..

The innermost frames decide; a frame's file says more than its function, because `wait`, `get` and `read` exist everywhere.
"""

import re
from collections.abc import Callable
from typing import Final, Literal, cast

from outrider.parsers.stacks import Frame, ProcessStack, Thread

Activity = Literal[
    "collective",
    "storage",
    "gpu",
    "data",
    "compile",
    "eval",
    "gc",
    "debugger",
    "sleep",
    "lock",
    "network",
    "compute",
    "exit",
    "unknown",
]

#: Frames looked at from the innermost outward.
DEPTH: Final = 12

_RULES: Final[tuple[tuple[Activity, re.Pattern[str], re.Pattern[str]], ...]] = tuple(
    (cast(Activity, name), re.compile(function, re.IGNORECASE), re.compile(file, re.IGNORECASE))
    for name, function, file in (
        (
            "debugger",
            r"^(?:interaction|cmdloop|set_trace|breakpoint|user_line|input|_readline_input)$",
            r"(?:pdb|cmd|bdb|ipdb|"
            r"debugpy|code)\b",
        ),
        (
            "storage",
            r"fsync|fdatasync|_save\b|_write|write_data|torch_save|save_file|write_bytes|flush|unlink|rename|replace|"
            r"stat|listdir|scandir|copyfile|makedirs|open_file|read_data|load_file",
            r"checkpoint|filesystem|serialization|shutil|pathlib|safetensors|fsspec|posixpath|genericpath|tensorstore|zarr|"
            r"/os\.py|^os\.py|^io\.py|tempfile|<frozen os>",
        ),
        (
            "storage",
            r"^(?:_?fsync|fdatasync|__libc_fsync|__GI___fsync|nfs_\w+|__GI___libc_(?:read|write|open)|__libc_(?:pread|"
            r"pwrite)\w*|fsync \(libc.*)$",
            r"",
        ),
        (
            "data",
            r"_next_data|_get_data|_try_get_data|fetch|_next_index|get_batch|next_batch|__next__|read_shard|_load_sample|"
            r"iter_shard|__getitem__|decode|tokenize|prefetch",
            r"dataloader|data_loader|dataset|/data/|^data|webdataset|streaming|mosaic|torchdata|parquet|pyarrow|tokeniz|datapipe|"
            r"mmap_dataset|indexed_dataset|loader",
        ),
        (
            "network",
            r"^(?:connect|recv|recv_into|readinto|send|sendall|do_handshake|getaddrinfo|create_connection|urlopen|"
            r"getresponse|_read_status|poll|request|urlopen)$",
            r"socket|ssl|http|urllib|requests|wandb|boto|grpc|"
            r"aiohttp|mlflow|s3fs",
        ),
        (
            "collective",
            r"",
            r"distributed_c10d|c10d_logger|torch/distributed/(?:nn|_functional_collectives|_composable|fsdp|"
            r"device_mesh|tensor)|process_group|gloo|nccl|rccl|deepspeed/comm|pipelining|p2p_communication|"
            r"torch/distributed/utils",
        ),
        (
            "collective",
            r"^(?:all_?reduce|barrier|all_?gather\w*|reduce_scatter\w*|broadcast\w*|all_to_all\w*|(?:i?send|i?recv)"
            r"(?:_forward|_backward|_next|_prev)?\w*|ncclGroupEnd|wait_tensor|monitored_barrier)$",
            r"",
        ),
        (
            "gpu",
            r"synchronize|cuda\w*(?:Synchronize|Malloc|Free|Launch|Memcpy|Event)\w*|cu(?:Ctx|Stream|Mem|Launch|Event|"
            r"Module|Init)\w*|nvml\w+|ioctl.*nvidia|\bitem$|_lazy_init|empty_cache",
            r"torch/cuda|libcuda|nvidia|pynvml|"
            r"cuda/streams|torch/_tensor|libnvidia|cudart|",
        ),
        (
            "compile",
            r"",
            r"torch/_inductor|torch/_dynamo|torch/_functorch|triton/(?:compiler|runtime)|torch/fx|cpp_extension|"
            r"nvcc|xla/",
        ),
        ("gc", r"^(?:collect|gc_collect\w*|_PyGC_\w+)$", r""),
        ("eval", r"evaluat|validat|generate$|run_eval|compute_metrics|predict", r""),
        ("sleep", r"^(?:sleep|time_sleep|clock_nanosleep|nanosleep)$", r""),
        (
            "lock",
            r"^(?:acquire|wait|_wait_for_tstate_lock|join|__enter__|futex_\w+|pthread_cond_\w+|do_futex_wait|take_gil|"
            r"PyThread_acquire_lock\w*)$",
            r"threading|libpthread|libc|queue|lock|multiprocessing|concurrent",
        ),
        ("exit", r"^(?:_exit_function|_run_exitfuncs|finalize|Py_Finalize\w*|_cleanup|destroy_process_group|abort|shutdown)$", r""),
        (
            "compute",
            r"^(?:forward|backward|_call_impl|_wrapped_call_impl|run_backward|_engine_run_backward|step|train_step|"
            r"linear|matmul|apply|fwd|bwd|__call__)$",
            r"",
        ),
    )
)


def activity(process: ProcessStack) -> tuple[Activity, Frame | None]:
    """What the process's main thread does, and the frame that says so."""
    thread = process.main
    if thread is None:
        return "unknown", None
    return _thread_activity(thread)


def _thread_activity(thread: Thread) -> tuple[Activity, Frame | None]:
    if "gc" in thread.flags:
        return "gc", thread.frames[0] if thread.frames else None
    fits: Callable[[Frame], Activity | None] = _frame_activity
    for frame in thread.frames[:DEPTH]:
        if (found := fits(frame)) is not None:
            # A wait on a lock is what its caller waits for: a loader's queue, a collective's work.
            if found in ("lock", "sleep", "compute", "network") and (outer := _outer(thread, frame)) is not None:
                return outer
            return found, frame
    return "unknown", thread.frames[0] if thread.frames else None


def _outer(thread: Thread, frame: Frame) -> tuple[Activity, Frame] | None:
    """A more telling activity in the frames around `frame`."""
    start = thread.frames.index(frame) + 1
    for other in thread.frames[start : start + DEPTH]:
        found = _frame_activity(other)
        if found in ("data", "collective", "storage", "gpu", "compile", "eval"):
            return found, other
    return None


def _frame_activity(frame: Frame) -> Activity | None:
    for name, function, file in _RULES:
        if function.search(frame.function) and file.search(frame.file):
            return name
    return None


def gil_holder(process: ProcessStack) -> Thread | None:
    """Another thread than the main one that holds the GIL and works."""
    main = process.main
    return next((one for one in process.threads if one is not main and "gil" in one.flags), None)


def signature(process: ProcessStack) -> str:
    """The innermost frames as one text, to find processes that stand at the same place."""
    thread = process.main
    return "" if thread is None else " < ".join(f"{one.function}@{one.file}" for one in thread.frames[:6])
