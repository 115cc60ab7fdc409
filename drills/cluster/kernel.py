"""The three Linux calls that Python 3.11 has no wrapper for: unshare, prctl(PR_SET_PDEATHSIG), and who may do so."""

import ctypes
import os
import signal

CLONE_NEWNET = 0x40000000  # linux/sched.h
PR_SET_PDEATHSIG = 1  # linux/prctl.h

_libc = ctypes.CDLL(None, use_errno=True)


def unshare_network() -> None:
    """Puts the calling process into a new, empty network namespace.

    Raises:
        OSError: the kernel refuses (no CAP_SYS_ADMIN).
    """
    if _libc.unshare(CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def die_with_parent(parent: int) -> None:
    """Asks the kernel to kill this process when its parent ends; ends at once if the parent (pid `parent`) is gone already."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
