"""A site of one node and some fake witnesses, and its agent as a real process."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from collectors.emulated.node import EmulatedNode
from collectors.emulated.witness import FakeWitness
from outrider.config.security import SecuritySection, write_secret


class Site:
    """The configuration of one node `n1` at 127.0.0.1 and its fake witnesses."""

    def __init__(self, folder: Path, witnesses: int, extra: str = "", node: EmulatedNode | None = None) -> None:
        self.folder, self.node = folder, node
        write_secret(folder / "key")
        write_secret(folder / "token")
        security = SecuritySection(heartbeat_key_file=str(folder / "key"), agent_token_file=str(folder / "token"))
        self.witnesses = [FakeWitness(security.heartbeat_keys(), security.agent_tokens()[0]) for _ in range(witnesses)]
        self.udp_port, self.metrics_port = free_port(socket.SOCK_DGRAM), free_port(socket.SOCK_STREAM)
        self.config = folder / "outrider.toml"
        members = "".join(
            f'[[witness.members]]\nname = "w{number}"\nhttp_port = {witness.http_port}\nheartbeat_port = {witness.heartbeat_port}\n'
            for number, witness in enumerate(self.witnesses, 1)
        )
        self.config.write_text(
            f'[fleet]\n[[fleet.nodes]]\nnode = "n1"\naddress = "127.0.0.1"\n'
            f'[agent]\nrun_dir = "{folder}/run"\nudp_port = {self.udp_port}\nmetrics_port = {self.metrics_port}\n'
            f"heartbeat_seconds = 0.1\npage_seconds = 0.02\nstep_signal_seconds = 0.0\norder_wait_seconds = 1.0\n"
            f"probe_seconds = 0.2\nmetrics_seconds = 0.1\ncollect = {str(node is not None).lower()}\n{extra}\n"
            f'[security]\nheartbeat_key_file = "{folder}/key"\nagent_token_file = "{folder}/token"\n{members}'
            + (f"[collectors]\ninterval_seconds = 1.0\n{node.toml()}" if node else "")
        )
        self.socket = folder / "run" / "n1" / "agent.sock"
        self.slots = folder / "run" / "n1" / "slots"
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> subprocess.Popen[bytes]:
        with open(self.folder / "agent.log", "ab") as log:
            command = [sys.executable, "-m", "outrider.cli.shell", "agent", "--config", str(self.config), "--node", "n1"]
            environment = os.environ | (self.node.environment() if self.node else {}) | {"PYTHONWARNINGS": "error"}
            process = subprocess.Popen(command, stderr=log, stdout=log, env=environment)
        self.processes.append(process)
        return process

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.wait(10)
        for witness in self.witnesses:
            witness.close()
        if self.node is not None:
            self.node.close()


def free_port(kind: int) -> int:
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
