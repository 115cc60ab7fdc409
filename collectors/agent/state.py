"""What names an agent's run: the boot of the machine, the start of the agent, and the folders it owns."""

import contextlib
import fcntl
import os
import time
from pathlib import Path

from outrider.config.agent import AgentSection
from outrider.errors import InputError

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id(path: Path = BOOT_ID) -> str:
    """The kernel's name of this boot: the first 8 characters of its random id tell two boots of one node apart."""
    return path.read_text(encoding="ascii").strip().replace("-", "")[:8]


class Folders:
    """The agent's folders, made with modes that let ranks of other users reach their own files only, and a lock.

    Args:
        section: the agent's settings.
        node: name of the node.

    Raises:
        InputError: a folder cannot be made, or another agent of this node runs.
    """

    def __init__(self, section: AgentSection, node: str) -> None:
        self.run = Path(section.run_dir) / node
        self.slots = self.run / "slots"
        self.state = Path(section.state_dir) / node if section.state_dir else self.run / "state"
        for folder, mode in ((self.run, 0o711), (self.slots, 0o711), (self.state, 0o700)):
            try:
                folder.mkdir(parents=True, exist_ok=True)
                folder.chmod(mode)
            except OSError as error:
                raise InputError(f"cannot be made: {error.strerror}", file=str(folder), key="agent.run_dir") from None
        self.socket = self.run / "agent.sock"
        self._lock = self._take_lock(node)

    def _take_lock(self, node: str) -> int:
        path = self.run / "agent.lock"
        try:
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"another agent of node {node!r} holds it", file=str(path)) from None
        except OSError as error:
            raise InputError(f"cannot be made: {error.strerror}", file=str(path)) from None
        return lock

    def close(self) -> None:
        """Lets the next agent in."""
        self.socket.unlink(missing_ok=True)
        os.close(self._lock)


def next_start(folder: Path) -> int:
    """The number of this start: greater than any before in this boot, even if the file that remembers it is lost."""
    path = folder / "start"
    try:
        before = int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        before = 0
    number = max(before + 1, int(time.monotonic()))
    replace_file(path, str(number).encode())
    return number


def replace_file(path: Path, body: bytes) -> None:
    """Writes a small file so that a reader, or the next start, sees the old one or the new one and never half of one."""
    temporary = path.with_name(path.name + ".new")
    temporary.write_bytes(body)
    temporary.replace(path)


def spare_from_oom() -> None:
    """Asks the kernel to end others first when memory runs out; without the right to ask, nothing happens."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("-900", encoding="ascii")
