"""A small imitation of dcgm-exporter: serves a page of GPUs, and misbehaves on request. For tests and drills.

Form of the page: dcgm-exporter's `/metrics` (names of its counters file, labels gpu, UUID, pci_bus_id, device, Hostname).
"""

import http.server
import socket
import threading
from typing import Any, Literal

Mood = Literal["well", "stuck", "endless", "cut", "junk", "error", "trickle"]


class FakeExporter:
    """Serves on a free port of 127.0.0.1. `values`: (metric, gpu) -> value; `mood`: how it behaves; `node`: stands in the uuids."""

    def __init__(self, gpus: int = 8, node: int = 0) -> None:
        self.mood: Mood = "well"
        self._node = node
        self.values: dict[tuple[str, int], float] = {}
        for gpu in range(gpus):
            for name, value in (
                ("DCGM_FI_DEV_GPU_TEMP", 55.0),
                ("DCGM_FI_DEV_POWER_USAGE", 600.0),
                ("DCGM_FI_DEV_GPU_UTIL", 99.0),
                ("DCGM_FI_DEV_SM_CLOCK", 1980.0),
                ("DCGM_FI_DEV_XID_ERRORS", 0.0),
                ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 0.0),
                ("DCGM_FI_DEV_ROW_REMAP_FAILURE", 0.0),
            ):
                self.values[name, gpu] = value
        self._release = threading.Event()
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads, self._server.block_on_close = True, False
        self._thread = threading.Thread(target=lambda: self._server.serve_forever(poll_interval=0.05), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Address of the page."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/metrics"

    def page(self) -> str:
        """The page as it is now."""
        lines = []
        for (name, gpu), value in self.values.items():
            uuid = f"GPU-{self._node:08d}-0000-0000-0000-{gpu:012d}"
            bus = f"00000000:{0x1B + 0x10 * gpu:02X}:00.0"
            labels = f'gpu="{gpu}",UUID="{uuid}",pci_bus_id="{bus}",device="nvidia{gpu}",modelName="NVIDIA H100",Hostname="n1"'
            lines.append(f"{name}{{{labels}}} {value:g}\n")
        return "".join(lines)

    def close(self) -> None:
        """Ends serving, and lets go whoever is held."""
        self._release.set()
        self._server.shutdown()
        self._server.server_close()

    def answer(self, handler: Any) -> None:
        """One answer, in the present mood."""
        body = self.page().encode()
        if self.mood == "stuck":
            self._release.wait(60)
            return
        if self.mood == "error":
            handler.send_error(500)
            return
        if self.mood == "junk":
            body = b"<html>\x00\xff not metrics at all\n" * 50
        handler.send_response(200)
        length = len(body) * 2 if self.mood == "cut" else len(body)
        if self.mood not in ("endless", "trickle"):
            handler.send_header("Content-Length", str(length))
        handler.end_headers()
        handler.wfile.write(body)
        while self.mood == "endless":
            handler.wfile.write(body)
        while self.mood == "trickle" and not self._release.wait(0.1):
            handler.wfile.write(b"#")


def _handler(exporter: FakeExporter) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            try:
                exporter.answer(self)
            except OSError:
                self.close_connection = True

        def finish(self) -> None:
            try:
                super().finish()
            except (OSError, ValueError):
                self.connection.shutdown(socket.SHUT_RDWR)

        def log_message(self, format: str, *args: Any) -> None:
            """Silent."""

    return Handler
