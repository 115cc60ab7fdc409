"""Section `[witness]`: the witnesses, where they listen, and their bounds."""

from msgspec import Struct

from outrider.config.paths import SitePath
from outrider.tls import Log, RenewedContext, client_context


class Member(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One witness.

    name: what votes and commands call it.
    address: where it listens and where agents reach it. Default: loopback, so nobody from outside.
    http_port, heartbeat_port: TCP port for signals, orders and questions; UDP port for heartbeats. 1 to 65535.
    vantage: what the witness shares with others (host, rack, power); two of one vantage point fall together. Empty: the address.
    tls_cert, tls_key: PEM files with which its HTTP port speaks TLS (both or none; docs/tls.md). Empty: clear text.
    tls_ca: PEM file of the authority that its clients trust. Empty: the system's.
    """

    name: str
    http_port: int
    heartbeat_port: int
    address: str = "127.0.0.1"
    vantage: str = ""
    tls_cert: SitePath = ""
    tls_key: SitePath = ""
    tls_ca: SitePath = ""

    def __post_init__(self) -> None:
        for key in ("http_port", "heartbeat_port"):
            if not 0 < getattr(self, key) < 65536:
                raise ValueError(f"{key} must be 1..65535 (is {getattr(self, key)})")
        if bool(self.tls_cert) is not bool(self.tls_key):
            raise ValueError("tls_cert and tls_key belong together")
        if self.tls_ca and not self.tls_cert:  # a client alone would send its token in clear text, and think otherwise
            raise ValueError("tls_ca needs tls_cert and tls_key, on clients too: they say that the witness speaks TLS")

    @property
    def url(self) -> str:
        """Base address of its HTTP interface."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{'https' if self.tls_cert else 'http'}://{host}:{self.http_port}"

    def trust(self, log: Log | None = None) -> RenewedContext | None:
        """How a client checks its certificate; None: it speaks clear text. `log` hears of a replaced file. Raises InputError."""
        return client_context(self.tls_ca, log) if self.tls_cert else None


class WitnessSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The witnesses of the site, and their bounds.

    members: three or five; an even number adds no safety.
    shared_vantage_ok: admits openly that witnesses share a vantage point (one machine); `status` shows it either way.
    state_dir: folder of the journals.
    batch_bytes_max: most bytes of one POST of signals; a larger one is answered 413.
    signals_queue_max: signals a second and witness; above it the answer is 503, so that agents keep them.
    journal_bytes_max: size of one journal file (compressed), of which two are kept. 0: no journal. 1,000 nodes fill it in hours.
    nodes_max: senders whose place in the order of signals is remembered (about 200 bytes each).
    tick_seconds: pace of the own-stall watch, 0.01 to 1. Faster sees shorter stalls and costs a wake-up each.
    stall_seconds: a tick this late is a stall. Far above scheduling noise, far below any time-out.
    """

    members: tuple[Member, ...] = ()
    shared_vantage_ok: bool = False
    state_dir: SitePath = "outrider-state"
    batch_bytes_max: int = 4 << 20
    signals_queue_max: int = 50_000
    journal_bytes_max: int = 256 << 20
    nodes_max: int = 65_536
    tick_seconds: float = 0.1
    stall_seconds: float = 0.5

    def __post_init__(self) -> None:
        names = [member.name for member in self.members]
        if len(set(names)) != len(names):
            raise ValueError("members: two witnesses have one name")
        if not 0.01 <= self.tick_seconds <= 1.0 or self.stall_seconds < 2 * self.tick_seconds:
            raise ValueError("tick_seconds must be 0.01..1 and stall_seconds at least twice that")

    def member(self, name: str) -> Member | None:
        """The witness called `name`."""
        return next((member for member in self.members if member.name == name), None)

    def shared_vantages(self) -> dict[str, list[str]]:
        """Vantage point -> the witnesses that share it; only those that two or more share."""
        groups: dict[str, list[str]] = {}
        for member in self.members:
            groups.setdefault(member.vantage or member.address, []).append(member.name)
        if all(member.vantage == "" and member.address.startswith("127.") for member in self.members) and len(self.members) > 1:
            return {"this machine": [member.name for member in self.members]}
        return {vantage: names for vantage, names in groups.items() if len(names) > 1}
