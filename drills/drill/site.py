"""One drill's site: its folder, secrets, addresses, ports and the configuration files that agents and witnesses read."""

import base64
import os
import secrets
import shutil
import socket
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from drills.cluster.network import Loopback, Namespaces
from drills.cluster.settings import make_secrets, watch_settings
from outrider.config.witness import Member

WITNESSES = ("w1", "w2", "w3")
JOB = "drill"
#: Nodes 0..3 hold slots 0..3, node 4 is the spare.
NODES = ("n1", "n2", "n3", "n4", "n5")
SPARE = NODES[-1]
#: Memory folders of drills: this, the drill's pid, and a random part.
PREFIX = "outrider-drill-"
WORLD = 4


@dataclass
class Site:
    """Everything that stands in one stage's folder.

    `hung_after_seconds`: the drill's own limit for hangs (60 s is the product's default; nobody waits a minute for a drill).
    """

    folder: Path
    network: Namespaces | Loopback
    hung_after_seconds: float = 12.0
    ports: dict[str, int] = field(default_factory=dict)
    run_dir: Path = Path()

    def prepare(self) -> None:
        """Makes the folder, secrets, ports and configuration. Raises OSError where the folder cannot be written."""
        for name in ("logs", "records", "snapshots", "secrets"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        memory = Path("/dev/shm")  # noqa: S108 - the agents' memory files belong on a memory file system
        sweep(memory)
        base = memory if os.access(memory, os.W_OK) else self.folder
        self.run_dir = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=base))
        make_secrets(self.folder)
        webhook = self.secret("webhook")
        webhook.write_text("whsec_" + base64.b64encode(secrets.token_bytes(32)).decode() + "\n")
        webhook.chmod(0o600)
        self._choose_ports()
        self.config_path().write_text(self._toml({}))

    def secret(self, name: str) -> Path:
        return self.folder / "secrets" / name

    def config_path(self, node: str | None = None) -> Path:
        """The site's configuration; for a node that has one of its own (heartbeats through a relay), that."""
        own = self.folder / f"site-{node}.toml"
        return own if node is not None and own.exists() else self.folder / "site.toml"

    def write_relayed_config(self, node: str, relay_ports: dict[str, int]) -> None:
        """A configuration in which `node` sends its heartbeats through a relay."""
        (self.folder / f"site-{node}.toml").write_text(self._toml(relay_ports))

    def address(self, node: str) -> str:
        return self.network.node_address(NODES.index(node))

    def agent_socket(self, node: str) -> str:
        return str(self.run_dir / node / "agent.sock")

    def records(self) -> Path:
        return self.folder / "records"

    def snapshots(self) -> Path:
        return self.folder / "snapshots"

    def _choose_ports(self) -> None:
        """Free ports on the hub's address, held together until all are known so that no two are the same."""
        names = ["launchers", "webhooks"]
        names += [f"{kind}-{witness}" for witness in WITNESSES for kind in ("http", "heartbeat", "relay")]
        held = []
        for name in names:
            kind = socket.SOCK_DGRAM if name.startswith(("heartbeat", "relay")) else socket.SOCK_STREAM
            one = socket.socket(socket.AF_INET, kind)
            one.bind((self.network.hub_address(), 0))
            self.ports[name] = one.getsockname()[1]
            held.append(one)
        for one in held:
            one.close()

    def _toml(self, relay_ports: dict[str, int]) -> str:
        hub = self.network.hub_address()
        members = [
            Member(
                name=name, address=hub, http_port=self.ports[f"http-{name}"],
                heartbeat_port=relay_ports.get(name, self.ports[f"heartbeat-{name}"]),
            )
            for name in WITNESSES
        ]  # fmt: skip
        nodes = "".join(
            f'\n[[fleet.nodes]]\nnode = "{node}"\nrack = "r{index}"\ngpus = 0\naddress = "{self.address(node)}"\n'
            for index, node in enumerate(NODES)
        )
        return f"""# Written by `outrider drill`.
[site]
name = "drill"
mode = "act"

[fleet]
spares = ["{SPARE}"]
{nodes}
{watch_settings(self.folder, members)}
[agent]
run_dir = "{self.run_dir}"
metrics_port = 0
collect = false

[policy]
hung_after_seconds = {self.hung_after_seconds}

[snapshots]
root = "{self.snapshots()}"

[[alerts.targets]]
name = "scheduler"
url = "http://{hub}:{self.ports["webhooks"]}/webhooks"
secret_files = ["{self.secret("webhook")}"]
"""


def sweep(memory: Path) -> list[Path]:
    """Removes what drills left in memory that were killed themselves: folders that carry the pid of a process that is gone."""
    swept = []
    for folder in memory.glob(f"{PREFIX}*-*"):
        pid = folder.name.removeprefix(PREFIX).split("-")[0]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(folder, ignore_errors=True)
            swept.append(folder)
    return swept
