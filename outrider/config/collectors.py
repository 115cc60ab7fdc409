"""`[collectors]`: where collectors find their sources. The defaults are those of Linux; tests point them at folders."""

from msgspec import Struct

from outrider.config.paths import SitePath, SiteProgram


class MountEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One mount to probe. `path`: a folder on it that the agent may write to. `server`: whose it is, for the graph of blame.
    `deadline_seconds`: a probe that takes longer is told as a hang."""

    path: SitePath
    server: str = ""
    deadline_seconds: float = 5.0


class LogEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Log files of ranks or trainers. `glob`: which files; `{job}` and `{rank}` in it stand for those parts of the path.
    `job`: if the path does not say it."""

    glob: SitePath
    job: str = ""


class CollectorsSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sources.

    sysfs_root, proc_root: where those file systems are.
    kmsg_path: the kernel log; kmsg_user_records: also take lines that a process wrote (tests and drills only).
    journalctl: program that reads the journal where the kernel log cannot be read; empty: never.
    interval_seconds: pace of counters (ports, NVML, host); events come by themselves.
    interfaces: network interfaces to watch besides those of real cards (a bond, a virtual one).
    mounts: what the storage collector probes; storage_interval_seconds: how often.
    dcgm_url: of a dcgm-exporter's page, e.g. `http://127.0.0.1:9400/metrics`; empty: none.
    nvml_library: path of libnvidia-ml; empty: the system's.
    rank_logs: files that ranks print to. flight_dir: folder of flight-recorder dumps (TORCH_NCCL_DEBUG_INFO_TEMP_FILE's folder).
    flight_pipe: beginning of the ranks' pipes (what TORCH_NCCL_DEBUG_INFO_PIPE_FILE says); empty: dumps are not asked for.
    ras_address: NCCL RAS as `host:port` (NCCL's default is localhost:28028); empty: none.
    train_logs: text or JSON-lines logs of trainers without the SDK; train_page_url: a trainer's Prometheus page;
        tensorboard_dir: a folder of event files; train_job: whose they are.
    provider: `aws`, `gcp` or `azure`: whose notices of reclaim are fetched; empty: none. provider_url: another address for them.
    """

    sysfs_root: SitePath = "/sys"
    proc_root: SitePath = "/proc"
    kmsg_path: SitePath = "/dev/kmsg"
    kmsg_user_records: bool = False
    journalctl: SiteProgram = "journalctl"
    interval_seconds: float = 10.0
    interfaces: tuple[str, ...] = ()
    mounts: tuple[MountEntry, ...] = ()
    storage_interval_seconds: float = 15.0
    dcgm_url: str = ""
    nvml_library: SiteProgram = ""
    rank_logs: tuple[LogEntry, ...] = ()
    flight_dir: SitePath = ""
    flight_pipe: SitePath = ""
    ras_address: str = ""
    train_logs: tuple[LogEntry, ...] = ()
    train_page_url: str = ""
    tensorboard_dir: SitePath = ""
    train_job: str = ""
    provider: str = ""
    provider_url: str = ""

    def __post_init__(self) -> None:
        if self.provider not in ("", "aws", "gcp", "azure"):
            raise ValueError(f"provider is {self.provider!r}; allowed: aws, gcp, azure, or empty")
        if not 1.0 <= self.interval_seconds <= 3600.0:
            raise ValueError(f"interval_seconds is {self.interval_seconds}; allowed: 1 to 3600")
        if not 0.1 <= self.storage_interval_seconds <= 3600.0:
            raise ValueError(f"storage_interval_seconds is {self.storage_interval_seconds}; allowed: 0.1 to 3600")
