"""TLS contexts of our own listeners and clients: 1.2 at least, certificates always checked, replaced files read anew.

Whoever renews certificates (cert-manager, Vault's agent, certbot) replaces files and tells nobody. So a context here looks at its
files when a connection begins: one stat a file. Open connections go on with what they have. Files that do not serve change nothing.
"""

import ssl
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from outrider.errors import InputError

#: When a person should look at a certificate that nobody renewed: so long before its end, seconds, and not before this share of its
#: life is left. Programs renew at a third of the life (30 of 90 days); what lives for a day only is renewed hours before its end.
SOON_SECONDS, SOON_SHARE = 14 * 86400, 0.25
#: .. and when it is nearly too late: a weekend.
LAST_SECONDS, LAST_SHARE = 2 * 86400, 0.1
#: X509_V_FLAG_NO_CHECK_TIME of OpenSSL, which Python's `ssl` does not name.
_NO_CHECK_TIME: Final = 0x200000

#: Changed files that did not serve, since the process began, by `certificate` and `authority`. One for the whole process, as its
#: contexts are made in many places; a key is there once there is such a context.
failures: Counter[str] = Counter()


class Log(Protocol):
    """Who is told of replaced files: structlog's loggers and the agent's fit."""

    def info(self, event: str, **fields: Any) -> Any: ...

    def warning(self, event: str, **fields: Any) -> Any: ...


class Life(NamedTuple):
    """When a certificate serves: both in seconds since 1970."""

    not_before: float
    not_after: float

    def left_seconds(self, now_wall: float) -> float:
        """How long it still serves; negative: it is over."""
        return self.not_after - now_wall

    def is_soon_over(self, now_wall: float) -> bool:
        """Whether a person should look at it, as the alerts say it."""
        return self.left_seconds(now_wall) < min(SOON_SECONDS, SOON_SHARE * (self.not_after - self.not_before))


class RenewedContext(ssl.SSLContext):
    """Gives each new connection the context of the newest files that serve; by itself it trusts nobody and shows nothing.

    `life`: of a listener's certificate, with the earliest end in its file; of a client's authorities, until the last of them ends
    (None: the file does not say). Safe to use from several threads.
    """

    life: Life | None

    def __new__(cls, *_: Any, server: bool, **__: Any) -> "RenewedContext":
        return super().__new__(cls, ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)

    def __init__(
        self, files: tuple[str, ...], make: Callable[[], tuple[ssl.SSLContext, Life | None]], log: Log | None, *, server: bool
    ) -> None:
        """Reads `files` by `make`, which raises InputError where they do not serve; so does this."""
        self._files, self._make, self._log = files, make, log
        self._part = "certificate" if server else "authority"
        self._lock = threading.Lock()
        failures[self._part] += 0
        self._seen: object = self._stamps()
        self._newest, self.life = make()

    def look(self) -> None:
        """Reads the files anew if they were replaced. What does not serve is told and counted once, and what was there stays."""
        with self._lock:
            stamps = self._stamps()
            if stamps == self._seen:
                return
            try:
                newest, life = self._make()
            except InputError as error:
                if self._stamps() != stamps:  # half of a pair was there, the other half came meanwhile: no news yet
                    return
                self._seen = stamps
                failures[self._part] += 1
                if self._log is not None:
                    self._log.warning("tls_files_refused", error=str(error), instead="those from before are still in use")
                return
            self._newest, self.life = newest, life
            # Files that change while they are read are read once more: a pair is never mixed, but it may be the one before.
            self._seen = stamps if self._stamps() == stamps else None
            if self._log is not None:
                self._log.info("tls_files_read_anew", file=self._files[0], not_after=life.not_after if life else None)

    def wrap_bio(self, *args: Any, **words: Any) -> ssl.SSLObject:
        """As every context's: asyncio begins each connection here."""
        self.look()
        return self._newest.wrap_bio(*args, **words)

    def wrap_socket(self, *args: Any, **words: Any) -> ssl.SSLSocket:
        """As every context's: blocking clients and listeners begin each connection here."""
        self.look()
        return self._newest.wrap_socket(*args, **words)

    def _stamps(self) -> tuple[tuple[int, ...], ...]:
        """What differs once a file was replaced, written or given another mode; links are followed, as a renewal may swap them."""
        found: list[tuple[int, ...]] = []
        for file in self._files:
            try:
                status = Path(file).stat()
                found.append((status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns))
            except OSError as error:
                found.append((error.errno or 0,))
        return tuple(found)


def server_context(cert_file: str, key_file: str, log: Log | None = None) -> RenewedContext:
    """What a listener shows.

    Args:
        cert_file, key_file: PEM files; certificates between ours and the authority's stand behind ours.
        log: who is told when they are replaced.

    Raises:
        InputError: a file cannot be read, does not fit or cannot serve a listener, or everybody can read the key.
    """
    return RenewedContext((cert_file, key_file), lambda: _server(cert_file, key_file), log, server=True)


def client_context(ca_file: str, log: Log | None = None) -> RenewedContext:
    """Whom a client trusts: the authorities in `ca_file` alone; empty: the system's, as they are now.

    Raises:
        InputError: the file holds no certificate.
    """
    return RenewedContext((ca_file,) if ca_file else (), lambda: _client(ca_file), log, server=False)


def readings(listener: str, context: RenewedContext | None) -> Iterator[tuple[str, tuple[str, ...], float]]:
    """What a metrics page says, as (metric, label values, value): of its listener's certificate if it has one, of files refused."""
    if context is not None:
        context.look()
        if context.life is not None:
            yield "outrider_tls_not_before_timestamp_seconds", (listener,), context.life.not_before
            yield "outrider_tls_not_after_timestamp_seconds", (listener,), context.life.not_after
    for part, count in failures.items():
        yield "outrider_tls_reload_failures_total", (part,), float(count)


def shows_name(cert_file: str, key_file: str, host: str) -> bool:
    """Whether a client that calls `host` (a name or an address) accepts the certificate's names. Raises InputError."""
    context, _ = _server(cert_file, key_file)
    try:
        _shown(context, cert_file, host)
    except ssl.CertificateError:
        return False
    return True


def life_of(certificate: Any) -> Life:
    """Of a certificate in the form of `ssl.SSLSocket.getpeercert`."""
    return Life(*(float(ssl.cert_time_to_seconds(certificate[key])) for key in ("notBefore", "notAfter")))


def _server(cert_file: str, key_file: str) -> tuple[ssl.SSLContext, Life]:
    try:
        mode = Path(key_file).stat().st_mode
        if mode & 0o007:
            raise InputError(f"is open to everybody (mode {mode & 0o777:03o}): chmod 600", file=key_file)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", file=key_file) from None
    try:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # A key under a pass phrase would ask for it at the terminal, and wait.
        context.load_cert_chain(cert_file, key_file, password=lambda: "")
        return context, _shown(context, cert_file)
    except (OSError, ssl.SSLError) as error:
        raise InputError(f"cannot be used as certificate with the key {key_file}: {_words(error)}", file=cert_file) from None


def _client(ca_file: str) -> tuple[ssl.SSLContext, Life | None]:
    try:
        context = ssl.create_default_context(cafile=ca_file or None)
    except (OSError, ssl.SSLError) as error:
        raise InputError(f"holds no certificate: {_words(error)}", file=ca_file) from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    lives = [life_of(one) for one in context.get_ca_certs()] if ca_file else []
    whole = Life(min(life.not_before for life in lives), max(life.not_after for life in lives)) if lives else None
    return context, whole


def _shown(context: ssl.SSLContext, cert_file: str, host: str | None = None) -> Life:
    """Tries a handshake in memory with a client that trusts what stands in the file, at any time. Returns how long it serves.

    Raises:
        ssl.SSLError: no client would accept it, for its purpose or, if one is given, as `host`'s.
    """
    client_side = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client_side.check_hostname = host is not None
    client_side.load_verify_locations(cert_file)
    client_side.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | ssl.VerifyFlags(_NO_CHECK_TIME)
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_side.wrap_bio(back, there, server_hostname=host)
    listener = context.wrap_bio(there, back, server_side=True)
    for side in (client, listener, client, listener, client):  # as many turns as TLS 1.2 takes; 1.3 is done before
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    lives = [life_of(one) for one in client_side.get_ca_certs()]
    own = life_of(client.getpeercert())
    return Life(own.not_before, min(life.not_after for life in (own, *lives)))


def _words(error: OSError) -> str:
    if "PEM lib" in str(error):
        return "one of them is no PEM file that can be read without a pass phrase"
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    return str(getattr(error, "reason", None) or error.strerror or error)
