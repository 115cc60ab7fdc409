"""The kinds of targets that `[alerts]` may name.

Each has a `name` (outbox and audit call it so) and the `types` it wants (empty: all that it understands).
"""

from typing import Literal

from msgspec import Struct

from outrider.config.paths import SitePath, SiteProgram


class Target(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One receiver of webhooks: `[[alerts.targets]]`.

    `url` is where bodies are POSTed; redirects are not followed. `secret_files` hold one Standard Webhooks secret each (base64,
    with or without `whsec_`); every delivery is signed with all of them, so that a key is rotated by adding the new one first.
    `ca_file` is the certificate authority of an https receiver (empty: the system's). `timeout_seconds` (> 0) bounds one attempt.
    `attempts_max` (>= 1) attempts, then the row is a dead letter that a person can send again.
    """

    name: str
    url: str
    types: tuple[str, ...] = ()
    secret_files: tuple[SitePath, ...] = ()
    ca_file: SitePath = ""
    timeout_seconds: float = 5.0
    attempts_max: int = 12

    def __post_init__(self) -> None:
        check_url(self.url)
        check_effort(self.timeout_seconds, self.attempts_max)


class AlertmanagerTarget(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An Alertmanager, alone or clustered: `[[alerts.alertmanagers]]`.

    `urls`: every member's base address; an alert goes to all, one yes is enough (they gossip). `token_file`: bearer token where a
    proxy asks for one. `repeat_seconds`: open incidents are posted again this often, as Prometheus does, so that a member that lost
    its memory hears of them. `hold_seconds`: an incident that nobody repeats any more ends after this in Alertmanager; longer than
    any restart of ours, so that our own death resolves nothing.
    """

    name: str
    urls: tuple[str, ...]
    types: tuple[str, ...] = ()
    token_file: SitePath = ""
    repeat_seconds: float = 60.0
    hold_seconds: float = 3600.0
    timeout_seconds: float = 5.0
    attempts_max: int = 100

    def __post_init__(self) -> None:
        if not self.urls:
            raise ValueError("urls must name at least one Alertmanager")
        for url in self.urls:
            check_url(url)
        check_effort(self.timeout_seconds, self.attempts_max)
        if not 1 <= self.repeat_seconds <= self.hold_seconds / 4:
            raise ValueError("repeat_seconds must be at least 1 and at most a quarter of hold_seconds")


class NotifyTarget(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """People, through apprise (PagerDuty, Slack, Feishu, DingTalk, mail, ..): `[[alerts.notify]]`; needs the extra `notify`.

    `url_file` holds apprise addresses, one a line (they carry secrets, so they stand in no configuration; mode 0600). `jobs`: only
    incidents of these jobs (a name, or a beginning that ends in `*`): so the owner of a job is told. `severities`: only these.
    """

    name: str
    url_file: SitePath
    types: tuple[str, ...] = ("incident.confirmed", "incident.resolved")
    jobs: tuple[str, ...] = ()
    severities: tuple[str, ...] = ("warning", "critical")
    timeout_seconds: float = 20.0
    attempts_max: int = 12

    def __post_init__(self) -> None:
        check_effort(self.timeout_seconds, self.attempts_max)


class SlurmTarget(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A Slurm cluster: `[[alerts.slurm]]`.

    `url`: base address of slurmrestd (empty: `scontrol` alone). `token_file`: its JWT; `user`: whose. `scontrol`: the program,
    used for what the REST server lacks (empty: never). `jobs`: Outrider's job name -> Slurm's job id; a job that is not here is
    looked up by its name or, if its name is a number, by that. `rank_map_dir`: shared folder for rank maps and host files.
    `settle_seconds`: how long the ranks of the old attempt may take to end.
    """

    name: str
    url: str = ""
    user: str = "root"
    token_file: SitePath = ""
    scontrol: SiteProgram = "scontrol"
    types: tuple[str, ...] = ()
    jobs: dict[str, int] = {}
    rank_map_dir: SitePath = "outrider-state/ranks"
    settle_seconds: float = 60.0
    timeout_seconds: float = 5.0
    attempts_max: int = 12

    def __post_init__(self) -> None:
        if self.url:
            check_url(self.url)
        if not self.url and not self.scontrol:
            raise ValueError("needs url (slurmrestd) or scontrol")
        check_effort(self.timeout_seconds, self.attempts_max)


class KubernetesTarget(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A Kubernetes cluster: `[[alerts.kubernetes]]`.

    `url`: the API server (empty: the one of this pod). `token_file`, `ca_file`: of the service account; read anew for each
    request, because the kubelet rotates the token. `namespaces`: where jobs run. `job_label`: the pod label with Outrider's job
    name. `no_execute`: the taint also ends pods that do not tolerate it. `rank_map`: before an attempt is ended, attempt, fence and
    rank map of the next one are written into the ConfigMap `outrider-ranks-<job>` beside the job.

    `kueue`: how a job that Kueue admitted is restarted. `requeue` (default): its Workload is set inactive until all pods are gone,
    then active: Kueue places it anew, off the bad node, but another Workload may take the quota in between. `pods`: only the pods
    are ended, the quota is kept; not with topology-aware scheduling, which would put a pod back where it was.
    `watch_kueue`: Workloads are watched, and the witnesses hear when Kueue stops a job, so that a preemption is no fault.
    """

    name: str
    url: str = ""
    token_file: SitePath = "/var/run/secrets/kubernetes.io/serviceaccount/token"  # noqa: S105 - a path
    ca_file: SitePath = ""
    namespaces: tuple[str, ...] = ("default",)
    job_label: str = "outrider.dev/job"
    no_execute: bool = False
    rank_map: bool = True
    kueue: Literal["requeue", "pods"] = "requeue"
    watch_kueue: bool = True
    types: tuple[str, ...] = ()
    timeout_seconds: float = 10.0
    attempts_max: int = 12

    def __post_init__(self) -> None:
        if self.url:
            check_url(self.url)
        check_effort(self.timeout_seconds, self.attempts_max)


class HostsTarget(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Plain hosts that run torchrun, one agent a node: `[[alerts.hosts]]`.

    `start` and `stop` are commands, run once for each node of the job without a shell; `{node}`, `{job}`, `{attempt}`, `{fence}`,
    `{node_rank}`, `{nodes}`, `{master}`, `{port}` and `{rank_map}` are filled in, for example
    `["ssh", "{node}", "systemctl", "start", "train@{job}"]`. `jobs`: job -> its nodes in slot order at the first start (a node
    appears once for each of its slots). `state_dir`: where attempt, fence and slots of each job are kept, and nodes out of service.
    `master_port`: first port for a job's store; each attempt takes the next of `master_ports`.
    """

    name: str
    start: tuple[str, ...]
    stop: tuple[str, ...]
    jobs: dict[str, tuple[str, ...]] = {}
    state_dir: SitePath = "outrider-state/hosts"
    master_port: int = 29400
    master_ports: int = 64
    types: tuple[str, ...] = ()
    timeout_seconds: float = 30.0
    attempts_max: int = 12

    def __post_init__(self) -> None:
        if not self.start or not self.stop:
            raise ValueError("start and stop must be commands")
        check_effort(self.timeout_seconds, self.attempts_max)


class CommandTarget(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A program of the site's: `[[alerts.commands]]`; for what no other target does, such as restarting an agent that hangs.

    `command` runs without a shell; `{node}`, `{job}`, `{attempt}`, `{fence}`, `{incident}`, `{fault}` and `{id}` (the webhook-id)
    are filled in (a name that could be an option, or that a shell would read, is refused: `alerts.run_command.unsafe`), the whole
    body comes on its standard input. Exit status 0: done; 75: try again later; another: refused for good.
    """

    name: str
    command: tuple[str, ...]
    types: tuple[str, ...]
    timeout_seconds: float = 30.0
    attempts_max: int = 5

    def __post_init__(self) -> None:
        if not self.command or not self.types:
            raise ValueError("needs a command, and the types it is for")
        check_effort(self.timeout_seconds, self.attempts_max)


def check_url(url: str) -> None:
    """Raises ValueError for what is no http address."""
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"url must start with http:// or https:// (is {url!r})")


def check_effort(timeout_seconds: float, attempts_max: int) -> None:
    """Raises ValueError for an attempt without time, or no attempt at all."""
    if timeout_seconds <= 0 or attempts_max < 1:
        raise ValueError("timeout_seconds must be above 0 and attempts_max at least 1")
