"""Asks another node by UDP whether its agent and its kernel live: the agent's port with a nonce, and a closed port.

| agent's port | closed port | answer |
| --- | --- | --- |
| reply | any | `reply`: alive |
| silent | refused | `mute`: the kernel answers, the process does not (stopped, or stuck) |
| refused | any | `refused`: the kernel answers, the process is gone |
| silent | silent | `none`: the host or the path is gone; a firewall that drops looks the same |

Cost: four datagrams. Rights: none. Source: measured on loopback, veth and bridge alike; kernels limit how fast they refuse, so
both questions are put twice.
"""

import os
import socket
from collections.abc import Callable
from typing import Literal

from collectors.agent.loop import Loop
from outrider.wire import NONCE_BYTES, PROBE_ANSWER, probe_question

Answer = Literal["reply", "mute", "refused", "none"]
#: Probes at a time; a witness that asks for more is held off (its next question comes soon).
PROBES_MAX = 64


def judge(agent: str, closed: str) -> Answer:
    """The answer from what each port said: `reply`, `refused` or `silent`."""
    if agent == "reply":
        return "reply"
    if agent == "refused":
        return "refused"
    return "mute" if closed in ("refused", "reply") else "none"


class Prober:
    """Probes without blocking the loop. Args: loop, the node's own address to ask from, seconds to wait for answers."""

    def __init__(self, loop: Loop, own_address: str, seconds: float) -> None:
        self._loop, self._own, self._seconds = loop, own_address, seconds
        self.running = 0

    def probe(self, address: str, port: int, closed_port: int, done: Callable[[Answer, float], None]) -> bool:
        """Starts a probe; `done` gets the answer and the seconds it took. False: too many run already."""
        if self.running >= PROBES_MAX:
            return False
        self.running += 1
        _Probe(self, address, port, closed_port, done).begin()
        return True


class _Probe:
    def __init__(self, prober: Prober, address: str, port: int, closed_port: int, done: Callable[[Answer, float], None]) -> None:
        self._prober, self._loop, self._done = prober, prober._loop, done
        self._question = probe_question(os.urandom(NONCE_BYTES))
        self._targets = {"agent": (address, port), "closed": (address, closed_port)}
        self._sockets: dict[str, socket.socket] = {}
        self._heard = {"agent": "silent", "closed": "silent"}
        self._over = False
        self._began = self._loop.clock.monotonic()

    def begin(self) -> None:
        for name, target in self._targets.items():
            family = socket.AF_INET6 if ":" in target[0] else socket.AF_INET
            channel = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
            self._sockets[name] = channel
            try:
                channel.bind((self._prober._own, 0))
                channel.connect(target)
            except OSError:
                continue  # no way there at all: that is silence
            self._loop.watch(channel, lambda name=name: self._listen(name))  # type: ignore[misc]
        seconds = self._prober._seconds
        self._ask()
        self._loop.call_later(seconds / 2, self._ask)
        self._loop.call_later(seconds, self._finish)

    def _ask(self) -> None:
        for name, channel in list(self._sockets.items()):
            if not self._over and self._heard[name] == "silent":
                try:
                    channel.send(self._question)
                except ConnectionRefusedError:
                    self._note(name, "refused")
                except OSError:
                    pass

    def _listen(self, name: str) -> None:
        try:
            datagram = self._sockets[name].recv(64)
        except ConnectionRefusedError:
            self._note(name, "refused")
        except OSError:
            pass
        else:
            if datagram == PROBE_ANSWER + self._question[len(PROBE_ANSWER) :]:
                self._note(name, "reply")

    def _note(self, name: str, word: str) -> None:
        self._heard[name] = word
        if self._heard["agent"] in ("reply", "refused"):
            self._finish()

    def _finish(self) -> None:
        if self._over:
            return
        self._over = True
        self._prober.running -= 1
        for channel in self._sockets.values():
            self._loop.unwatch(channel)
            channel.close()
        self._done(judge(self._heard["agent"], self._heard["closed"]), self._loop.clock.monotonic() - self._began)
