"""Heartbeats out, answers to nonces back: the agent's UDP port."""

import socket
from collections.abc import Callable

from outrider.config.witness import Member
from outrider.errors import InputError
from outrider.wire import HEARTBEAT_VERSION, Heartbeat, pack_heartbeat, probe_answer

#: Datagrams read in one turn of the loop, so that a flood cannot keep the heartbeats from going out.
DATAGRAMS_A_TURN = 64


class BeatPort:
    """One UDP socket at the node's address. `answered`, `strange`: nonces answered, other datagrams dropped.

    Raises:
        InputError: the address or port cannot be had.
    """

    def __init__(self, address: str, port: int) -> None:
        self._socket = socket.socket(family_of(address), socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            self._socket.bind((address, port))
        except OSError as error:
            self._socket.close()
            raise InputError(f"UDP port {port} at {address}: {error.strerror}", key="agent.udp_port") from None
        self.port: int = self._socket.getsockname()[1]
        self.answered = self.strange = self.unsent = 0

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, datagram: bytes, place: tuple[str, int]) -> None:
        """Sends without waiting; what cannot go is counted (the next beat comes soon)."""
        try:
            self._socket.sendto(datagram, place)
        except OSError:
            self.unsent += 1

    def answer(self) -> None:
        """Reads what has come and answers nonces."""
        for _ in range(DATAGRAMS_A_TURN):
            try:
                datagram, place = self._socket.recvfrom(64)
            except BlockingIOError:
                return
            except OSError:
                continue  # an ICMP answer to an earlier datagram
            reply = probe_answer(datagram)
            if reply is None:
                self.strange += 1
                continue
            self.answered += 1
            self.send(reply, place)

    def close(self) -> None:
        self._socket.close()


class Heart:
    """Sends one signed heartbeat to every witness each time it is asked to.

    Args:
        port: where datagrams leave.
        places: the witnesses' (address, port).
        keys: the first one signs.
        name: (node, boot, start).
        lag: seconds by which the agent's own loop is late.
        monotonic: clock.
    """

    def __init__(
        self,
        port: BeatPort,
        places: list[tuple[str, int]],
        keys: tuple[bytes, ...],
        name: tuple[str, str, int],
        lag: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        self._port, self._places, self._keys, self._name = port, places, keys, name
        self._lag, self._monotonic = lag, monotonic
        self.seq = 0

    def beat(self) -> None:
        """One beat."""
        self.seq += 1
        beat = Heartbeat(HEARTBEAT_VERSION, *self._name, self.seq, self._monotonic(), self._lag())
        datagram = pack_heartbeat(beat, self._keys)
        for place in self._places:
            self._port.send(datagram, place)


def heartbeat_places(members: tuple[Member, ...], family: socket.AddressFamily) -> list[tuple[str, int]]:
    """Where each witness takes heartbeats; names are looked up once, at the start.

    Raises:
        InputError: a name is not known.
    """
    places = []
    for member in members:
        try:
            found = socket.getaddrinfo(member.address, member.heartbeat_port, family, socket.SOCK_DGRAM)
        except OSError as error:
            raise InputError(f"witness {member.name}: address {member.address!r}: {error}", key="witness.members") from None
        places.append((str(found[0][4][0]), member.heartbeat_port))
    return places


def family_of(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET
