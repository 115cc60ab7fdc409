"""Remembers children that hang over a restart of the agent: a new agent does not send a second one after them."""

from pathlib import Path

import msgspec

from collectors.agent.exits import process_born
from collectors.agent.state import replace_file
from collectors.frame.board import Begun
from outrider.wire import UNREADABLE

FILE = "stuck.json"


class StuckChild(msgspec.Struct, frozen=True, kw_only=True):
    """A child that did not come back from a call. `born` tells its process from a later one with the same number."""

    pid: int
    born: int
    boot: str
    begun: Begun

    def alive(self) -> bool:
        """Whether that very process is still there."""
        return self.born != 0 and process_born(self.pid) == self.born


class StuckMemory:
    """The file. Args: folder that outlives the agent; this boot (what hung before it is gone)."""

    def __init__(self, folder: str, boot: str) -> None:
        self._path, self._boot = Path(folder) / FILE, boot
        self._known: dict[str, StuckChild] = {}

    def read(self) -> dict[str, StuckChild]:
        """Group -> its child that still hangs."""
        try:
            found = msgspec.json.decode(self._path.read_bytes(), type=dict[str, StuckChild])
        except (OSError, *UNREADABLE):
            found = {}
        self._known = {group: child for group, child in found.items() if child.boot == self._boot and child.alive()}
        return dict(self._known)

    def add(self, group: str, pid: int, begun: Begun) -> None:
        """A child hangs."""
        self._known[group] = StuckChild(pid=pid, born=process_born(pid), boot=self._boot, begun=begun)
        self._write()

    def remove(self, group: str) -> None:
        """It has come back, or is gone."""
        if self._known.pop(group, None) is not None:
            self._write()

    def _write(self) -> None:
        try:
            replace_file(self._path, msgspec.json.encode(self._known))
        except OSError:
            return  # at worst a new agent sends one more
