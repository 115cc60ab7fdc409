"""Authorities and certificates of the tests' own, made by openssl; and a client that says which certificate it was shown."""

import http.client
import shutil
import socket
import ssl
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

_EC = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
_CONFIG = """[ca]
default_ca = own
[own]
database = {folder}/index
new_certs_dir = {folder}
rand_serial = yes
unique_subject = no
default_md = sha256
policy = any
[any]
commonName = supplied
"""


def openssl(*words: object) -> None:
    """Runs the openssl command line."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, timeout=30)


def authority(folder: Path, name: str, *, days: float = 1, starts_days: float = -0.001) -> Path:
    """A certificate authority that serves from `starts_days` from now on, for `days`; its key stands beside it."""
    cert, _ = _made(
        folder, name, ("-selfsign", "-keyfile", folder / f"{name}.key"), "basicConstraints=critical,CA:TRUE", days, starts_days
    )
    return cert


def signed(
    folder: Path, by: Path, name: str = "w", *, names: str = "IP:127.0.0.1", days: float = 1, starts_days: float = -0.001
) -> tuple[Path, Path]:
    """Certificate and key, signed by an authority, that serve from `starts_days` from now on, for `days`."""
    words = f"subjectAltName={names}\nbasicConstraints=CA:FALSE"
    return _made(folder, name, ("-cert", by, "-keyfile", by.with_suffix(".key")), words, days, starts_days)


def _made(folder: Path, name: str, by: tuple[object, ...], extensions: str, days: float, starts_days: float) -> tuple[Path, Path]:
    cert, key, request = (folder / f"{name}.{end}" for end in ("pem", "key", "csr"))
    work = folder / f"{name}-by"
    work.mkdir(exist_ok=True)
    for file, text in (("index", ""), ("config", _CONFIG.format(folder=work)), ("extensions", extensions)):
        (work / file).write_text(text)
    starts = datetime.now(UTC) + timedelta(days=starts_days)
    from_, to = (when.strftime("%Y%m%d%H%M%SZ") for when in (starts, starts + timedelta(days=days)))
    openssl("req", "-new", *_EC, "-keyout", key, "-out", request, "-subj", f"/CN={name}")
    openssl(
        "ca", "-config", work / "config", "-batch", "-notext", "-in", request, *by, "-startdate", from_, "-enddate", to,
        "-extfile", work / "extensions", "-out", cert,
    )  # fmt: skip
    key.chmod(0o600)
    return cert, key


def serial_of(cert: Path) -> str:
    """Its number, as a client sees it."""
    told = subprocess.run(["openssl", "x509", "-in", cert, "-noout", "-serial"], check=True, capture_output=True, text=True)
    return told.stdout.strip().removeprefix("serial=")


class Caller:
    """A connection of a plain client that trusts `ca`; `serial` is of the certificate that it was shown."""

    def __init__(self, port: int, ca: Path) -> None:
        context = ssl.create_default_context(cafile=ca)
        self._socket = context.wrap_socket(socket.create_connection(("127.0.0.1", port), 10), server_hostname="127.0.0.1")
        told: Any = self._socket.getpeercert()
        self.serial = str(told["serialNumber"])

    def get(self, path: str, token: str = "") -> tuple[int, str]:
        """The answer's status and body, over this connection."""
        self._socket.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
        with http.client.HTTPResponse(self._socket) as answer:
            answer.begin()
            return answer.status, answer.read().decode()

    def close(self) -> None:
        self._socket.close()


class Heard:
    """A log that keeps what it was told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def info(self, event: str, **fields: Any) -> None:
        self.lines.append(f"{event} {fields}")

    def warning(self, event: str, **fields: Any) -> None:
        self.lines.append(f"{event} {fields}")
