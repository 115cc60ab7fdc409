"""A hand-written agent that says what docs/contracts.md says and no more, and small things the SDK's tests share."""

import json
import selectors
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from outrider.sdk import area, page
from outrider.sdk.cells import Command


class FakeAgent:
    """Gives memory to ranks, keeps their events, writes commands. Runs in a thread until `stop`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.socket = folder, str(folder / "agent.sock")
        self.hellos: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        self.refusal = ""
        self._files: dict[tuple[int, int, int], tuple[Path, Path, int]] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> "FakeAgent":
        Path(self.socket).unlink(missing_ok=True)
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(self.socket)
        self._server.listen()
        self._stop.clear()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(5)

    def page(self, slot: int) -> page.Reader:
        return page.Reader(page.open_page(self._newest(slot)[0]))

    def area(self, slot: int) -> area.CopyArea:
        return area.CopyArea.open(self._newest(slot)[1])

    def command(self, slot: int, command: Command, **fields: Any) -> int:
        return page.CommandWriter(page.open_page(self._newest(slot)[0])).write(command, **fields)

    def told(self, kind: str, **data: Any) -> list[dict[str, Any]]:
        """The events of a kind whose data has these values."""
        return [e for e in list(self.events) if e["kind"] == kind and all(e["data"].get(k) == v for k, v in data.items())]

    def _newest(self, slot: int) -> tuple[Path, Path, int]:
        return next(files for (_, of, _), files in reversed(self._files.items()) if of == slot)

    def _serve(self) -> None:
        selector = selectors.DefaultSelector()
        selector.register(self._server, selectors.EVENT_READ, None)
        buffers: dict[socket.socket, bytes] = {}
        slots: dict[socket.socket, int] = {}
        while not self._stop.is_set():
            for key, _ in selector.select(0.02):
                if key.data is None:
                    caller, _ = self._server.accept()
                    selector.register(caller, selectors.EVENT_READ, "caller")
                    buffers[caller] = b""
                    continue
                caller = key.fileobj
                chunk = caller.recv(65536)
                if not chunk:
                    selector.unregister(caller)
                    caller.close()
                    continue
                *lines, buffers[caller] = (buffers[caller] + chunk).split(b"\n")
                for line in lines:
                    self._line(caller, json.loads(line), slots)
        for caller in buffers:
            caller.close()
        self._server.close()

    def _line(self, caller: socket.socket, line: dict[str, Any], slots: dict[socket.socket, int]) -> None:
        if "event" in line:
            self.events.append({"data": {}, **line["event"], "slot": slots[caller]})
            return
        if self.refusal:
            caller.send(json.dumps({"ok": False, "error": self.refusal}).encode() + b"\n")
            return
        slots[caller] = line["slot"]
        key = (line["attempt"], line["slot"], line["pid"])
        if key not in self._files or self._files[key][2] < line["copy_bytes"]:
            base = f"{line['slot']}.{line['attempt']}.{line['pid']}"
            progress, copy = self.folder / f"{base}.progress", self.folder / f"{base}.copy"
            page.create(progress, attempt=line["attempt"], slot=line["slot"])
            area.create(copy, copy_bytes=line["copy_bytes"])
            self._files[key] = (progress, copy, line["copy_bytes"])
        self.hellos.append(line)
        progress, copy, _ = self._files[key]
        caller.send(json.dumps({"ok": True, "node": "n1", "progress": str(progress), "copy": str(copy)}).encode() + b"\n")


def until(condition: Callable[[], Any], seconds: float = 10.0) -> Any:
    """Waits for another thread or process; fails loudly after `seconds`."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)
    return value
