"""What an exception in a step says: is it the network's or the program's, and whom does it blame."""

import re
import socket
from dataclasses import dataclass

#: Text of a failed collective: gloo, NCCL, the c10d store. Source: torch 2.13 and gloo messages, as printed by real runs.
_COMMUNICATION = re.compile(
    r"gloo|NCCL|ProcessGroup|process group|Connection (?:reset|closed|refused)|Timed out waiting|Broken pipe|Socket Timeout"
    r"|sendBytes failed|recvValue failed|failed to recv|wait timeout after|Application timeout caused pair closure"
    r"|Read (?:error|timeout)|Write timeout|monitoredBarrier|DistBackendError|DistNetworkError|DistStoreError",
    re.IGNORECASE,
)
#: gloo names its peer as [address]:port, and prints the port as it lies in memory, in the network's byte order (seen with
#: torch 2.13: the swapped number is the connection's port).
_PEER = re.compile(r"\[([0-9A-Fa-f.:]+)\]:(\d+)")
#: Long tails ("This is typically caused by ..") say nothing of this fault.
_TEXT_MAX = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFault:
    """`communication`: a collective failed; `peer`: address it blames, `port`: there; both None if it names none."""

    text: str
    communication: bool
    library: str | None = None
    peer: str | None = None
    port: int | None = None


def describe(error: BaseException) -> StepFault:
    """Reads an exception."""
    text = " ".join(f"{type(error).__name__}: {error}".split())[:_TEXT_MAX]
    communication = isinstance(error, RuntimeError | OSError) and bool(_COMMUNICATION.search(text))
    match = _PEER.search(text) if communication else None
    library = None
    if communication:
        library = "nccl" if "nccl" in text.lower() else "gloo" if "gloo" in text.lower() else "c10d"
    return StepFault(
        text=text,
        communication=communication,
        library=library,
        peer=match[1].removeprefix("::ffff:") if match else None,
        port=socket.ntohs(int(match[2]) & 0xFFFF) if match else None,
    )
