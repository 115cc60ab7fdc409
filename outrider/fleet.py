"""Who is there: nodes, racks, GPUs, network devices, jobs and their slots. Static facts, from configuration or a trace's header."""

from typing import Any

import msgspec


class Node(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=False):
    """One machine. `nics` maps an RDMA device to its leaf switch, `mounts` a path to whose it is (a server; empty: not known);
    `uuids` and `pcis` are indexed by GPU; `switch` is the one that its management network hangs on."""

    node: str
    rack: str | None = None
    gpus: int = 0
    nics: dict[str, str] = {}
    address: str | None = None
    pcis: tuple[str, ...] = ()
    uuids: tuple[str, ...] = ()
    switch: str | None = None
    power: str | None = None
    mounts: dict[str, str] = {}


def leaf_of(node: Node) -> str:
    """The one switch that a node hangs on; empty where it has several (a rail each) or none is known."""
    switches = {node.switch, *node.nics.values()} - {None, ""}
    return str(next(iter(switches))) if len(switches) == 1 else ""


class Job(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One training job. A slot is (node, gpu); its place in the list is the rank. `limits` are seconds: `train_s`, `eval_s`, .."""

    job: str
    slots: tuple[tuple[str, int], ...] = ()
    groups: dict[str, tuple[tuple[int, ...], ...]] = {}
    limits: dict[str, float] = {}
    synchronous: bool = True
    attempt: int = 1


class Auto(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a trace's replayer supplies by itself: heartbeats each `heartbeat_s`, a step of each job each `step_s[job]`."""

    heartbeat_s: float | None = None
    step_s: dict[str, float] = {}


class Fleet(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The header of a trace, and the witness's picture of the site.

    `links` are cables between switches, `{"from": leaf, "to": spine}`; `rails` maps a rail to its devices or leaf switches (empty:
    they are told from the cabling, see `outrider.topology.graph.Rails`).
    """

    nodes: tuple[Node, ...] = ()
    jobs: tuple[Job, ...] = ()
    witnesses: tuple[str, ...] = ("w1", "w2", "w3")
    spares: tuple[str, ...] = ()
    until: float | None = None
    auto: Auto = Auto()
    links: tuple[dict[str, Any], ...] = ()
    rails: dict[str, tuple[str, ...]] = {}
