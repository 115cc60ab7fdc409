"""The model of the site, the command that shows it, and the way from discovery to configuration and back."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from fabric import NODES, ibnetdiscover, kubernetes, lldp, slurm_tree

from outrider.config.fleet import FleetSection
from outrider.config.site import read_config
from outrider.errors import OutriderError
from outrider.fleet import Fleet, Job, Node
from outrider.topology.command import topology
from outrider.topology.draft import Draft, to_toml
from outrider.topology.graph import site_graph, ways_up

SITE = Fleet(
    nodes=tuple(
        Node(
            node=f"n{k}", rack=f"r{k // 4}", power=f"feed{k // 8}", gpus=8, switch=f"mgmt{k // 8}", address=f"10.0.0.{k}",
            mounts={"/ckpt": "nfs1", "/data": ""}, pcis=("0000:3b:00",), uuids=("GPU-1",),
            nics={f"mlx5_{x}": f"leaf-{k // 8}-{x}" for x in range(2)},
        )
        for k in range(16)
    ),
    links=(
        *({"from": f"leaf-{p}-{x}", "to": f"spine-{s}"} for p in range(2) for x in range(2) for s in range(2)),
        {"from": "spine-0", "to": "core"}, {"a": "leaf-0-0", "b": "leaf-0-1"}, {"from": "island-a", "to": "island-b"},
    ),
    spares=("n15",),
)  # fmt: skip


def run(*arguments: str) -> tuple[int, str, str]:
    """Exit status, standard output and error; an expected error counts as status 2, as in the shell."""
    result = CliRunner().invoke(topology, arguments, standalone_mode=False)
    if isinstance(result.exception, OutriderError):
        return 2, result.stdout, str(result.exception)
    if result.exception is not None:
        raise result.exception
    return int(result.return_value or 0), result.stdout, result.stderr


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_every_part_points_at_what_it_hangs_on() -> None:
    graph = site_graph(SITE)
    assert set(graph.successors(("port", "n1", "mlx5_1"))) == {("node", "n1"), ("switch", "leaf-0-1"), ("rail", "mlx5_1")}
    assert set(graph.successors(("node", "n9"))) == {
        ("rack", "r2"), ("power", "feed1"), ("switch", "mgmt1"), ("mount", "nfs1"), ("mount", "/data"),
    }  # fmt: skip
    assert graph.nodes["node", "n15"]["spare"] and graph.nodes["node", "n15"]["gpus"] == 8
    assert graph.nodes["spine", "core"]["tier"] == 2 and graph.nodes["switch", "leaf-0-0"]["tier"] == 0


def test_cables_within_a_tier_and_islands_explain_nothing() -> None:
    graph = site_graph(SITE)
    assert not graph.has_edge(("switch", "leaf-0-0"), ("switch", "leaf-0-1"))
    assert ("switch", "island-a") not in graph and ("spine", "island-a") not in graph


def test_a_ports_way_leaves_out_the_management_switch_and_a_nodes_way_its_mounts() -> None:
    ways = dict(ways_up(site_graph(SITE)))
    assert ways["port", "n1", "mlx5_0"] == (
        ("switch", "leaf-0-0"), ("rack", "r0"), ("power", "feed0"), ("spine", "core"), ("spine", "spine-0"), ("spine", "spine-1"),
        ("rail", "mlx5_0"),
    )  # fmt: skip
    assert ways["node", "n1"] == (("switch", "mgmt0"), ("rack", "r0"), ("power", "feed0"))


def test_one_device_name_on_one_leaf_is_no_rail_nor_are_devices_that_share_a_leaf() -> None:
    one_leaf = Fleet(nodes=tuple(Node(node=f"n{k}", nics={"a": "l0", "b": "l1"}) for k in range(4)))
    shared = Fleet(nodes=tuple(Node(node=f"n{k}", nics={"a": f"l{k}", "b": f"l{k}"}) for k in range(4)))
    for fleet in (one_leaf, shared):
        assert not [vertex for vertex in site_graph(fleet) if vertex[0] == "rail"]


def test_light_commands_and_the_model_itself_do_not_import_networkx() -> None:
    modules = "outrider, outrider.sdk, outrider.fleet, outrider.topology.graph, outrider.topology.command, collectors.agent.command"
    code = f"import sys, {modules}; print('networkx' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "False"


def test_a_fleet_that_is_written_is_read_back_the_same(tmp_path: Path) -> None:
    strange = Node(node='quo"ted-\u00e9', rack="a.b \\ c\x7f", nics={"mlx5 0": "l'1"}, mounts={"/a b": 'se"rver'})
    job = Job(job="j1", slots=(("n1", 0), ("n2", 0)), groups={"dp": ((0, 1),)}, limits={"train_s": 300.0}, synchronous=False)
    fleet = Fleet(nodes=(*SITE.nodes, strange), links=SITE.links, spares=SITE.spares, rails={"blue": ("mlx5_0",)}, jobs=(job,))
    path = tmp_path / "site.toml"
    path.write_text(to_toml(fleet), encoding="utf-8")
    section = read_config(path).get(FleetSection)
    assert to_toml(section.fleet(fleet.witnesses)) == to_toml(fleet)


def test_what_is_discovered_becomes_the_fleet_of_a_configuration(tmp_path: Path) -> None:
    """The whole way: three sources and a configuration in, a file out, and the file shows the same graph."""
    config = write(tmp_path / "site.toml", '[[fleet.nodes]]\nnode = "n1"\nrack = "told-by-hand"\ngpus = 4\n')
    fabric = write(tmp_path / "fabric", ibnetdiscover())
    nodes = write(tmp_path / "nodes.json", kubernetes())
    tree = write(tmp_path / "topology.conf", slurm_tree(False))
    out = str(tmp_path / "fleet.toml")
    sources = ("--from", "ibnetdiscover", fabric, "--from", "kubernetes", nodes, "--from", "slurm", tree)
    status, text, notes = run("--config", config, *sources, "--out", out)
    assert (status, text) == (0, "")
    *doubts, wrote = notes.splitlines()
    assert [note.partition("; ")[2] for note in doubts] == ["the first one stands"] * 2  # its rack and its cards
    assert wrote.endswith(f"wrote {out}")
    section = read_config(out).get(FleetSection)
    first = section.nodes[0]
    assert (first.node, first.rack, first.gpus) == ("n1", "told-by-hand", 4)  # what a person wrote stands
    assert first.nics == {"mlx5_0": "leaf-0-0", "mlx5_1": "leaf-0-1"} and first.switch == "leaf-0" and first.power == "hall-0"
    assert [node.node for node in section.nodes] == list(NODES)
    assert run("--config", out, "--json")[1] == run("--config", config, *sources, "--json")[1]


def test_sources_that_contradict_each_other_are_told_and_the_first_stands() -> None:
    draft = Draft()
    draft.node("n1", switch="a")
    other = Draft()
    other.node("n1", switch="b", rack="r1")
    draft.add(other)
    assert draft.nodes["n1"] == {"switch": "a", "rack": "r1"} and "'a' and as 'b'" in draft.notes[0]


def test_the_tree_shows_the_network_and_what_is_shared(tmp_path: Path) -> None:
    config = write(tmp_path / "site.toml", to_toml(SITE) + '\n[[collectors.mounts]]\npath = "/scratch"\nserver = "lustre"\n')
    status, text, _ = run("--config", config)
    assert status == 0
    for line in (
        "16 nodes, 32 ports", "128 GPUs, 1 spares", "leaf switch leaf-0-0: 8 nodes n[0-7], also below spine-1",
        "spine (tier 2) core",
        "mlx5_1: 16 nodes n[0-15]", "r3: 4 nodes n[12-15]", "feed1: 8 nodes n[8-15]", "nfs1: 16 nodes", "lustre: 16 nodes",
    ):  # fmt: skip
        assert line in text, (line, text)


def test_one_node_shows_its_ways_up(tmp_path: Path) -> None:
    config = write(tmp_path / "site.toml", to_toml(SITE))
    status, text, _ = run("--config", config, "--node", "n9")
    assert status == 0 and "port n9 mlx5_1: leaf switch leaf-1-1, rack r2, power feed feed1" in text
    assert json.loads(run("--config", config, "--node", "n9", "--json")[1])["node n9"][0] == "leaf switch mgmt1"
    assert run("--config", config, "--node", "n99") == (2, "", "no node is called 'n99'")


def test_json_has_counts_vertices_and_edges(tmp_path: Path) -> None:
    told = json.loads(run("--config", write(tmp_path / "site.toml", to_toml(SITE)), "--json")[1])
    assert told["counts"] == {
        "node": 16, "port": 32, "switch": 6, "spine": 3, "rack": 4, "power": 2, "rail": 2, "mount": 2, "gpu": 128, "spare": 1,
        "cable": 11,
    }  # fmt: skip
    assert ["port:n3/mlx5_0", "switch:leaf-0-0"] in told["edges"] and ["node:n3", "mount:nfs1"] in told["edges"]
    assert {"id": "node:n15", "kind": "node", "gpus": 8, "address": "10.0.0.15", "pcis": ["0000:3b:00"], "uuids": ["GPU-1"],
            "spare": True} in told["vertices"]  # fmt: skip


@pytest.mark.parametrize(("name", "begins"), [("a.dot", b"digraph"), ("a.png", b"\x89PNG"), ("a.svg", b"<?xml")])
def test_pictures(name: str, begins: bytes, tmp_path: Path) -> None:
    config = write(tmp_path / "site.toml", to_toml(SITE))
    status, text, _ = run("--config", config, "--picture", str(tmp_path / name))
    assert (status, text) == (0, "") and (tmp_path / name).read_bytes().startswith(begins)


def test_bad_use_is_one_line(tmp_path: Path) -> None:
    config = write(tmp_path / "site.toml", to_toml(SITE))
    assert run()[2].startswith("nothing to show and no settings here: say --config FILE, or --from FORMAT FILE")
    assert "ends in .dot" in run("--config", config, "--picture", str(tmp_path / "a.txt"))[2]
    assert "cannot be written" in run("--config", config, "--out", str(tmp_path / "none" / "a.toml"))[2]
    empty = write(tmp_path / "empty.toml", "")
    assert run("--config", empty) == (2, "", f"{empty}: fleet.nodes: names no node: see `[[fleet.nodes]]` in docs/topology.md")
    odd = write(tmp_path / "odd.toml", '[[fleet.nodes]]\nnode = "a"\nrak = "b"\n')
    assert ":3: fleet.nodes[0].rak: unknown key; did you mean 'rack'?" in run("--config", odd)[2]


def test_lldp_files_are_named_as_their_nodes(tmp_path: Path) -> None:
    path = write(tmp_path / "n2.json", lldp(2))
    status, text, _ = run("--from", "lldp", path, "--gpus", "8", "--out", "-")
    assert status == 0 and 'node = "n2"' in text and "gpus = 8" in text
