"""The nursery: a small process, forked before the agent starts a thread, that forks children on request.

A child so costs about three megabytes of its own. If the nursery is lost the agent starts another as a fresh process.
"""

import gc
import os
import selectors
import signal
import socket
import subprocess
import sys
import traceback

from collectors.frame.board import Board
from collectors.frame.child import run
from collectors.frame.pipe import Exited, FromNursery, Pipe, PipeError, Spawn, Spawned
from collectors.frame.types import News


def fork_nursery() -> socket.socket:
    """Forks the nursery; the caller must have one thread. Returns the agent's end of its socket."""
    ours, theirs = socket.socketpair()
    gc.collect()
    gc.freeze()  # a collection, here or there, would touch all that both share, and so copy it
    if os.fork() == 0:
        ours.close()
        status = 1
        try:
            serve(theirs)
            status = 0
        except Exception:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    theirs.close()
    return ours


def start_nursery() -> socket.socket:
    """Starts a nursery as a fresh process, from whatever state this one is in. Returns the agent's end of its socket."""
    ours, theirs = socket.socketpair()
    with theirs:
        subprocess.Popen(
            [sys.executable, "-m", "collectors.frame.nursery", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
        )
    return ours


def serve(channel: socket.socket) -> None:
    """The nursery's life: forks, reaps, and ends with the agent."""
    gc.freeze()  # children share what is here now; a collection would touch, and so copy, every page
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    pipe = Pipe(channel, Spawn)
    children: dict[int, int] = {}
    waiting: list[int] = []  # descriptors whose message has not come whole yet
    selector = selectors.DefaultSelector()
    selector.register(pipe, selectors.EVENT_READ)
    selector.register(wake_read, selectors.EVENT_READ)
    try:
        while True:
            for key, _ in selector.select():
                if key.fileobj is pipe:
                    messages, descriptors = pipe.receive()
                    waiting += descriptors
                    for spawn in messages:
                        pid = _fork_child(spawn, waiting.pop(0), waiting.pop(0))
                        children[pid] = spawn.child
                        pipe.send(Spawned(child=spawn.child, pid=pid))
                else:
                    os.read(wake_read, 512)
            _reap(children, pipe)
    except PipeError:
        return  # the agent has ended; the children see that by themselves


def _fork_child(spawn: Spawn, descriptor: int, board: int) -> int:
    pid = os.fork()
    if pid:
        os.close(descriptor)
        os.close(board)
        return pid
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        # Nothing of the nursery's stays open here: a child that is stuck for days must not hold the agent's socket.
        shared = Board(board)
        channel = socket.socket(fileno=os.dup2(descriptor, 3)) if descriptor != 3 else socket.socket(fileno=3)
        os.closerange(4, 256)
        channel.setblocking(True)
        run(Pipe(channel, News), shared, spawn)
        status = 0
    except Exception:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def _reap(children: dict[int, int], pipe: Pipe) -> None:
    while children:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        child = children.pop(pid, None)
        if child is not None:
            pipe.send(Exited(child=child, code=os.waitstatus_to_exitcode(status)))


def nursery_pipe(channel: socket.socket) -> Pipe:
    """The agent's end, for `Supervisor`."""
    channel.setblocking(False)
    return Pipe(channel, FromNursery)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
