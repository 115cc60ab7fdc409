"""A server that speaks NCCL RAS's protocol version 2 on a free port, well or not at all."""

import socket
import threading
import time
from typing import Literal

#: An answer about no communicator.
EMPTY = '{"communicators_count": 0, "communicators": []}'
Mood = Literal["well", "silent", "stuck", "endless", "junk", "cut"]


class FakeRas:
    """`answer`: what it says when asked for the status; `asked`: how often it was. `mood`: `silent` says nothing and listens on,
    `stuck` says nothing and hangs up after `stuck_seconds`, `endless` does not stop, `junk` and `cut` say something else."""

    def __init__(self, answer: str = EMPTY, mood: Mood = "well", stuck_seconds: float = 0.6) -> None:
        self.answer, self.mood, self.asked = answer, mood, 0
        self._stuck_seconds = stuck_seconds
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                channel, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._speak, args=(channel,), daemon=True).start()

    def _speak(self, channel: socket.socket) -> None:
        with channel:
            try:
                with channel.makefile("rb") as lines:
                    for line in lines:
                        if not self._say(channel, line.decode().strip()):
                            return
            except OSError:
                return

    def _say(self, channel: socket.socket, word: str) -> bool:
        """Answers one line; False ends the conversation."""
        match self.mood:
            case "silent":
                return True
            case "stuck":
                time.sleep(self._stuck_seconds)
                return False
            case "junk" | "cut":
                channel.sendall(b"\x00\xff{[junk\n" if self.mood == "junk" else b'{"communicators": [{"has')
                return False
        while self.mood == "endless":
            channel.sendall(b"x" * 65536)
        if word.startswith("CLIENT"):
            channel.sendall(b"SERVER PROTOCOL 2\n")
        elif word.startswith("SET"):
            channel.sendall(b"OK\n")
        else:
            self.asked += 1
            channel.sendall(self.answer.encode())
            return False
        return True

    def close(self) -> None:
        self._socket.close()
