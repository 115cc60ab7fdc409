"""`[agent]`: one node's agent."""

import msgspec

from outrider.config.paths import SitePath


class AgentSection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of all agents of the site; each adds the name of its node, and its node's address from `[fleet]`.

    run_dir: folder of sockets and of the memory files of slots; must lie on a memory file system with room for two
        copies of each local rank's state.
    state_dir: folder of what must outlive a boot (start number, spool, orders obeyed). Empty: `<run_dir>/<node>/state`.
    udp_port: port at the node's address that answers probes; heartbeats leave from it. 0 takes any free port (tests).
    closed_port: UDP port on which nothing listens on any node: a host that lives answers "refused" there.
    metrics_address, metrics_port: where `/metrics` is; `"node"` is the node's own address. Off loopback a viewer token
        is needed. Port 0: no page.
    metrics_tls_cert, metrics_tls_key: PEM files with which the page speaks TLS (both or none; docs/tls.md). Empty: clear text.
    heartbeat_seconds: pace of heartbeats. Faster finds a dead node sooner; a witness pays about 5 microseconds a beat.
    page_seconds: pace at which progress pages are read; half of it is the mean delay of a `step` signal. Each look wakes the
        agent, which costs more than what it reads.
    step_signal_seconds: at most one `step` signal a rank in this time: fast jobs finish many steps in it.
    metrics_seconds: pace at which the metrics page is made anew.
    order_wait_seconds: how long a witness may hold a long poll open.
    spool_bytes_max: bound of the signals kept on disk while witnesses do not answer; the oldest are dropped, counted.
    probe_seconds: how long a probe waits for each answer; both questions go out together.
    users: names or numbers of users, besides root and the agent's own, whose processes may use the socket.
    collectors: collectors to switch on or off by name; one that is not named is as `collect` says.
    collect: whether collectors run that are not named. Each runs only where its source is found.
    """

    run_dir: SitePath = "/dev/shm/outrider"  # noqa: S108 - the one place where every Linux has a memory file system
    state_dir: SitePath = ""
    udp_port: int = 9471
    closed_port: int = 9479
    metrics_address: str = "127.0.0.1"
    metrics_port: int = 9470
    metrics_tls_cert: SitePath = ""
    metrics_tls_key: SitePath = ""
    heartbeat_seconds: float = 1.0
    page_seconds: float = 0.5
    step_signal_seconds: float = 0.5
    metrics_seconds: float = 5.0
    order_wait_seconds: float = 20.0
    spool_bytes_max: int = 64 << 20
    probe_seconds: float = 0.4
    users: tuple[str | int, ...] = ()
    collectors: dict[str, bool] = {}
    collect: bool = True

    def __post_init__(self) -> None:
        for name, low, high in (
            ("heartbeat_seconds", 0.05, 60.0),
            ("page_seconds", 0.01, 10.0),
            ("step_signal_seconds", 0.0, 60.0),
            ("metrics_seconds", 0.1, 300.0),
            ("order_wait_seconds", 0.0, 60.0),
            ("probe_seconds", 0.05, 10.0),
        ):
            if not low <= getattr(self, name) <= high:
                raise ValueError(f"{name} is {getattr(self, name)}; allowed: {low:g} to {high:g} seconds")
        for name in ("udp_port", "closed_port", "metrics_port"):
            if not 0 <= getattr(self, name) <= 65535:
                raise ValueError(f"{name} is {getattr(self, name)}; allowed: 0 to 65535")
        if bool(self.metrics_tls_cert) is not bool(self.metrics_tls_key):
            raise ValueError("metrics_tls_cert and metrics_tls_key belong together")
        if self.spool_bytes_max < 1 << 16:
            raise ValueError("spool_bytes_max is below 65536")
