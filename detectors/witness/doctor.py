"""The checks of `outrider doctor`: is this node, with these settings, fit to join a job?

A check looks, changes nothing (but a file of its own that it takes away again), and says `ok`, `warn`, `fail` or `unknown` with one
line. Unknown is never shown as healthy.
"""

import http.client
import secrets
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

from detectors.witness.client import open_straight
from detectors.witness.doctor_folders import memory_folder, snapshot_folder
from detectors.witness.doctor_settings import mode, secret_files, targets, witnesses
from detectors.witness.doctor_tls import certificates
from detectors.witness.findings import Finding, Patient, State
from outrider.config.agent import AgentSection
from outrider.config.fleet import FleetSection
from outrider.config.security import SecuritySection
from outrider.config.site import Config
from outrider.config.witness import Member, WitnessSection
from outrider.errors import InputError
from outrider.wire import NODE_HEADER, NONCE_BYTES, probe_answer, probe_question

#: A witness further away than this makes votes late, seconds.
WITNESS_SECONDS_MAX: Final = 0.5
#: This process's own wake-ups; later than this, the machine is too busy for a one-second heartbeat, seconds.
LAG_SECONDS_MAX: Final = 0.1
#: What a witness asks of the kernel for its heartbeat socket (`HeartbeatReceiver`), and what 1,000 nodes need of it.
RECEIVE_BYTES_A_NODE: Final = 1024


def examine(config: Config, name: str | None) -> Iterator[Finding]:
    """Runs every check, in an order in which the first failure explains the later ones."""
    node = next((node for node in config.get(FleetSection).nodes if node.node == name), None)
    patient = Patient(config=config, node=node, name=name)
    for check in (
        mode,
        targets,
        _node,
        secret_files,
        witnesses,
        _witness_answers,
        certificates,
        memory_folder,
        snapshot_folder,
        _ports,
        _cards,
        _clock,
        _receive,
    ):
        yield from check(patient)


def _node(patient: Patient) -> Iterator[Finding]:
    if patient.name is None:
        yield Finding(check="node", state="unknown", text="no --node given: what belongs to one node is not checked")
        return
    if patient.node is None:
        known = ", ".join(node.node for node in patient.config.get(FleetSection).nodes[:5]) or "none"
        yield Finding(
            check="node", state="fail", text=f"{patient.name} is not in [fleet] (known: {known} ..): its heartbeats are ignored"
        )
        return
    address = patient.node.address
    if not address:
        yield Finding(check="node", state="fail", text=f"{patient.name} has no address in [fleet]: nobody can probe it")
        return
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError as error:
            yield Finding(
                check="node", state="fail", text=f"{patient.name}: {address} is no address of this machine ({error.strerror})"
            )
            return
    yield Finding(check="node", state="ok", text=f"{patient.name} at {address}")


def _witness_answers(patient: Patient) -> Iterator[Finding]:
    members = patient.config.get(WitnessSection).members
    try:
        token = patient.config.get(SecuritySection).agent_tokens()[0]
    except InputError:
        token = ""
    reached = 0
    for member in members:
        finding = _ask(member, token, patient.name or "doctor")
        reached += finding.state in ("ok", "warn")
        yield finding
    if members and reached <= len(members) // 2:
        yield Finding(
            check="quorum",
            state="fail",
            text=f"{reached} of {len(members)} witnesses are reached from here: no quorum would hear it",
        )


def _ask(member: Member, token: str, node: str) -> Finding:
    """Asks one witness as an agent would, without waiting for orders."""
    check = f"witness {member.name}"
    request = urllib.request.Request(  # noqa: S310 - the scheme is ours
        f"{member.url}/v1/orders?node={node}&after=0&wait=0", headers={"Authorization": f"Bearer {token}", NODE_HEADER: node}
    )
    began = time.monotonic()
    try:
        with open_straight(request, 3.0, member.trust()):
            took = time.monotonic() - began
    except urllib.error.HTTPError as error:
        with error:
            why = {401: "does not know the agents' token", 403: "does not take this token as an agent's"}.get(
                error.code, f"HTTP {error.code}"
            )
        return Finding(check=check, state="fail", text=f"{member.url} answers, but {why}")
    except InputError as error:
        return Finding(check=check, state="fail", text=str(error))
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error or type(error).__name__
        return Finding(check=check, state="fail", text=f"{member.url} is not reached, or something else answers: {reason}")
    state: State = "ok" if took <= WITNESS_SECONDS_MAX else "warn"
    return Finding(check=check, state=state, text=f"{member.url} answers in {took * 1000:.0f} ms")


def _ports(patient: Patient) -> Iterator[Finding]:
    if patient.node is None or not patient.node.address:
        return
    agent, address = patient.config.get(AgentSection), patient.node.address
    answer = _probe(address, agent.udp_port)
    said: dict[str, tuple[State, str]] = {
        "reply": ("ok", "an agent answers there"),
        "refused": ("ok", "free: no agent runs yet"),
        "none": ("warn", "nobody answers and nothing refuses: a firewall, or another program"),
    }
    yield Finding(check="agent port", state=said[answer][0], text=f"{address}:{agent.udp_port}/udp: {said[answer][1]}")
    if _probe(address, agent.closed_port) == "refused":
        yield Finding(check="closed port", state="ok", text=f"{address}:{agent.closed_port}/udp refuses, as probes expect")
    else:
        text = f"{address}:{agent.closed_port}/udp does not refuse: probes take a node without an agent for one that is gone"
        yield Finding(check="closed port", state="fail", text=text)


def _probe(address: str, port: int) -> Literal["reply", "refused", "none"]:
    """The agents' own question, from here. Half a second is a hundred times what a local answer takes."""
    question = probe_question(secrets.token_bytes(NONCE_BYTES))
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.settimeout(0.5)
        try:
            asking.connect((address, port))
            asking.send(question)
            return "reply" if asking.recv(64) == probe_answer(question) else "none"
        except ConnectionRefusedError:
            return "refused"
        except OSError:
            return "none"


def _cards(patient: Patient) -> Iterator[Finding]:
    if patient.node is None or not patient.node.gpus:
        return
    folder = Path("/proc/driver/nvidia/gpus")
    if not folder.is_dir():
        yield Finding(check="cards", state="unknown", text=f"{patient.node.gpus} expected; no driver tells how many there are")
        return
    seen = sum(1 for _ in folder.iterdir())
    yield Finding(
        check="cards", state="ok" if seen == patient.node.gpus else "fail", text=f"{seen} seen, {patient.node.gpus} expected"
    )


def _clock(_patient: Patient) -> Iterator[Finding]:
    late = 0.0
    for _ in range(20):
        due = time.monotonic() + 0.01
        time.sleep(0.01)
        late = max(late, time.monotonic() - due)
    state: State = "ok" if late <= LAG_SECONDS_MAX else "warn"
    yield Finding(check="pace", state=state, text=f"wakes at most {late * 1000:.0f} ms late")


def _receive(patient: Patient) -> Iterator[Finding]:
    section, nodes = patient.config.get(WitnessSection), patient.config.get(FleetSection).nodes
    mine = [member.name for member in section.members if _is_local(member.address)]
    if not mine:
        return
    limit = int(Path("/proc/sys/net/core/rmem_max").read_text(encoding="ascii"))
    wanted = len(nodes) * RECEIVE_BYTES_A_NODE
    state: State = "ok" if limit >= wanted else "warn"
    yield Finding(
        check="receive buffer",
        state=state,
        text=f"net.core.rmem_max is {limit}, {len(nodes)} nodes want {wanted} ({', '.join(mine)})",
    )


def _is_local(address: str) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True
