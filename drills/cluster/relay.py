"""A UDP relay between one node's agent and one witness: it can lose datagrams and delay them, as a bad network would."""

import asyncio
import random
from typing import cast


class Relay(asyncio.DatagramProtocol):
    """Forwards what arrives to `target`.

    While `lossy` is true everything is lost; `delay_seconds` holds each datagram back for a random time up to that. One heartbeat
    a second passes here, so the cost of asyncio's own datagram layer does not matter.
    """

    def __init__(self, target: tuple[str, int], chance: random.Random) -> None:
        self._target, self._chance = target, chance
        self._transport: asyncio.DatagramTransport | None = None
        self.lossy = False
        self.delay_seconds = 0.0
        self.lost = 0
        self.delayed = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        if self.lossy:
            self.lost += 1
        elif self.delay_seconds > 0:
            self.delayed += 1
            asyncio.get_running_loop().call_later(self._chance.uniform(0, self.delay_seconds), self._forward, data)
        else:
            self._forward(data)

    def _forward(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.sendto(data, self._target)

    @classmethod
    async def open(cls, listen: tuple[str, int], target: tuple[str, int], chance: random.Random) -> "Relay":
        """Listens on `listen`. Raises OSError where the port is busy."""
        _, relay = await asyncio.get_running_loop().create_datagram_endpoint(lambda: cls(target, chance), local_addr=listen)
        return relay

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
