"""Section `[witness]`: the witnesses, where they listen, and their bounds."""

from msgspec import Struct


class Member(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One witness.

    `name` is what votes and commands call it. `address` is where it listens and where agents reach it; the default is
    loopback.
    `http_port` (TCP) takes signals, orders and questions, `heartbeat_port` (UDP) heartbeats; 0 is not allowed,
    because others must
    know them. `vantage` names what the witness shares with others (host, rack, power): two witnesses with one vantage
    point fall
    together; empty means the address.
    """

    name: str
    http_port: int
    heartbeat_port: int
    address: str = "127.0.0.1"
    vantage: str = ""

    def __post_init__(self) -> None:
        for key in ("http_port", "heartbeat_port"):
            if not 0 < getattr(self, key) < 65536:
                raise ValueError(f"{key} must be 1..65535 (is {getattr(self, key)})")

    @property
    def url(self) -> str:
        """Base address of its HTTP interface."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"http://{host}:{self.http_port}"


class WitnessSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`members`: three (or five) witnesses; an even number adds no safety. `shared_vantage_ok`: admits openly that
    witnesses share
    a vantage point (one machine); `status` shows it as a warning. `state_dir`: journals, relative paths from where
    the witness starts.

    Bounds: `batch_bytes_max` of one POST of signals (larger: 413); `signals_queue_max` signals a second and witness
    before it
    answers 429, so that an agent keeps them; `journal_bytes_max` of one journal file (compressed), two are kept (0: no journal);
    `incidents_max` incidents that the ledger remembers once closed; `nodes_max` senders whose order of signals is
    remembered.
    Clock: `tick_seconds` of the own-stall watch, `stall_seconds` late is a stall (0.5 s: far above scheduling noise,
    far below
    any time-out).
    """

    members: tuple[Member, ...] = ()
    shared_vantage_ok: bool = False
    state_dir: str = "outrider-state"
    batch_bytes_max: int = 4 << 20
    signals_queue_max: int = 50_000
    journal_bytes_max: int = 256 << 20
    incidents_max: int = 10_000
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
