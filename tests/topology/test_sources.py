"""Topology that the fabric and the schedulers tell of, read into a fleet; what is wrong with a file is one line."""

import copy
import json
import tomllib
from pathlib import Path

import pytest
from fabric import CABLES, NODES, iblinkinfo, ibnetdiscover, kubernetes, leaf, lldp, slurm_tree
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outrider.errors import InputError
from outrider.parsers.hostlist import compress, expand
from outrider.topology import show
from outrider.topology.draft import Draft, to_toml
from outrider.topology.sources import FORMATS, read_source

BOTH = {node: {f"mlx5_{device}": leaf(index, device) for device in (0, 1)} for index, node in enumerate(NODES, 1)}


def read(kind: str, text: str, tmp_path: Path, name: str = "file") -> Draft:
    path = tmp_path / name
    path.write_text(text)
    return read_source(kind, path)


@pytest.mark.parametrize(
    ("kind", "text"),
    [("ibnetdiscover", ibnetdiscover()), ("iblinkinfo", iblinkinfo(False)), ("iblinkinfo", iblinkinfo(True))],
    ids=["ibnetdiscover", "iblinkinfo", "iblinkinfo --line"],
)
def test_an_infiniband_fabric_tells_which_device_hangs_on_which_leaf_and_leaf_on_spine(
    kind: str, text: str, tmp_path: Path
) -> None:
    draft = read(kind, text, tmp_path)
    assert {name: facts["nics"] for name, facts in draft.nodes.items()} == BOTH
    assert sorted(draft.links) == CABLES and draft.notes == []


def test_switches_that_are_described_alike_are_called_by_their_guid(tmp_path: Path) -> None:
    text = ibnetdiscover().replace("MF0;leaf-0-0:MQM9700/U1", "Quantum").replace("MF0;leaf-0-1:MQM9700/U1", "Quantum")
    nics = read("ibnetdiscover", text, tmp_path).nodes["n1"]["nics"]
    assert len(set(nics.values())) == 2 and all(name.startswith("b8599f03") for name in nics.values())


def test_chips_of_one_chassis_keep_the_whole_description(tmp_path: Path) -> None:
    text = ibnetdiscover()
    for name, chip in (("leaf-0-0", "L01"), ("leaf-0-1", "L02")):
        text = text.replace(f"MF0;{name}:MQM9700/U1", f"MF0;director:MCS8500/{chip}/U1")
    assert read("ibnetdiscover", text, tmp_path).nodes["n1"]["nics"]["mlx5_1"] == "MF0;director:MCS8500/L02/U1"


@pytest.mark.parametrize("shown", [False, True], ids=["topology.conf", "scontrol"])
def test_slurms_tree_gives_each_node_its_leaf(shown: bool, tmp_path: Path) -> None:
    draft = read("slurm", slurm_tree(shown), tmp_path)
    assert draft.nodes == {f"n{n}": {"switch": f"leaf-{(n - 1) // 2}"} for n in range(1, 5)}
    assert draft.links == {("leaf-0", "top"), ("leaf-1", "top")}


def test_slurms_blocks_are_racks(tmp_path: Path) -> None:
    text = "BlockName=b0 Nodes=n[1-2]\nBlockName=b1 \\\n  Nodes=n[3-4] # the rest\n"
    text += "BlockSizes=2,4\nAggregatedBlock=b[0-1] Nodes=n[1-4]\n"
    assert read("slurm", text, tmp_path).nodes == {f"n{n}": {"rack": f"b{(n - 1) // 2}"} for n in range(1, 5)}


@pytest.mark.parametrize("generation", [1, 2, 3])
def test_kubernetes_labels_of_all_generations_tell_the_same(generation: int, tmp_path: Path) -> None:
    draft = read("kubernetes", kubernetes(generation), tmp_path)
    assert draft.nodes["n3"] == {"rack": "nvl1", "power": "hall-1", "switch": "leaf-1", "address": "10.0.0.3", "gpus": 8}
    assert draft.links == {("leaf-0", "spine"), ("leaf-1", "spine"), ("spine", "core")}


def test_one_zone_for_all_nodes_tells_nothing(tmp_path: Path) -> None:
    draft = read("kubernetes", kubernetes().replace("hall-1", "hall-0"), tmp_path)
    assert all("power" not in facts for facts in draft.nodes.values())


@pytest.mark.parametrize("form", ["json", "json0"])
def test_lldp_of_a_folder_of_nodes(form: str, tmp_path: Path) -> None:
    folder = tmp_path / "lldp"
    folder.mkdir()
    for number in range(1, 5):
        (folder / f"n{number}.json").write_text(lldp(number, form))
    draft = read_source("lldp", folder)
    assert draft.nodes["n4"] == {"nics": {"ens0np0": "leaf-1-0", "ens1np0": "leaf-1-1"}, "switch": "mgmt-1"}
    assert sorted(draft.nodes) == list(NODES)


def test_lldp_with_one_port_and_with_a_nameless_neighbour(tmp_path: Path) -> None:
    one = {"via": "LLDP", "chassis": {"id": {"type": "mac", "value": "b8:59"}}}
    draft = read("lldp", json.dumps({"lldp": {"interface": {"ens0": one}}}), tmp_path, "n9.json")
    assert draft.nodes == {"n9": {"nics": {"ens0": "b8:59"}}}
    draft = read("lldp", json.dumps({"lldp": {"interface": {"ens0": {"via": "LLDP"}}}}), tmp_path, "n9.json")
    assert draft.nodes == {"n9": {}} and "ens0" in draft.notes[0]


WRONG: dict[str, tuple[str, str, int | None, str | None]] = {
    "a line of slurm that is no pair": ("slurm", "SwitchName=a Nodes=n1\nnonsense here\n", 2, None),
    "a switch of slurm without anything": ("slurm", "SwitchName=a Nodes=n1\n\nSwitchName=b Node=n2\n", 3, "switchname=b"),
    "another line of slurm.conf": ("slurm", "NodeName=n1 CPUs=2\n", 1, "nodename"),
    "a host list that is none": ("slurm", "SwitchName=a Nodes=n[1-\n", 1, "nodes"),
    "a host list without end": ("slurm", "SwitchName=a Nodes=n[1-99999999]\n", 1, "nodes"),
    "names below names without end": ("slurm", "SwitchName=a Nodes=n1\nSwitchName=s[1-9999] Switches=t[1-9999]\n", 2, "switchname"),
    "a broken switch line": ("ibnetdiscover", 'Switch\t36 "X"\n', 1, "Switch"),
    "a broken port line": ("ibnetdiscover", ibnetdiscover().replace('[1]\t"H-', '[1]\t"Q-', 1), 11, "[1]"),
    "a fabric without hosts": ("ibnetdiscover", "# nothing\n", None, None),
    "a line of another tool": ("iblinkinfo", "Switch: 0x0000000000000001 a:\nHello\n", 2, "Hello"),
    "JSON that ends early": ("kubernetes", '{\n "items": [\n', 3, None),
    "nodes that are no list": ("kubernetes", '{"items": {}}', None, "items"),
    "a node without a name": ("kubernetes", '{"items": [{"metadata": {}}]}', None, "items[0].metadata.name"),
    "labels that are no table": (
        "kubernetes", '{"items": [{"metadata": {"name": "a", "labels": 3}}]}', None, "items[0].metadata.labels",
    ),
    "cards that are no number": (
        "kubernetes", '{"items": [{"metadata": {"name": "a"}, "status": {"capacity": {"nvidia.com/gpu": "all"}}}]}', None,
        "items[0].status.capacity.nvidia.com/gpu",
    ),
    "addresses that are no list": (
        "kubernetes", '{"items": [{"metadata": {"name": "a"}, "status": {"addresses": true}}]}', None, "items[0].status.addresses",
    ),
    "a number of thousands of digits": ("kubernetes", '{"items": ' + "9" * 5000 + "}", None, None),
    "cards without end": (
        "kubernetes", '{"items": [{"metadata": {"name": "a"}, "status": {"capacity": {"nvidia.com/gpu": "' + "9" * 5000 + '"}}}]}',
        None, "items[0].status.capacity.nvidia.com/gpu",
    ),
    "half a character": ("kubernetes", '{"items": [{"metadata": {"name": "\\ud800"}}]}', None, None),
    "a switch of two lines": ("lldp", '{"lldp": {"interface": {"e": {"chassis": {"a\\nb": {"id": 1}}}}}}', None, None),
    "JSON without lldp": ("lldp", "{}", None, "lldp"),
    "an interface that is none": ("lldp", '{"lldp": {"interface": [7]}}', None, "lldp.interface[0]"),
    "JSON of a great depth": ("lldp", "[" * 100_000, None, None),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_file_that_is_wrong_is_one_line_that_says_where(case: str, tmp_path: Path) -> None:
    kind, text, line, key = WRONG[case]
    with pytest.raises(InputError) as caught:
        read(kind, text, tmp_path)
    error = caught.value
    assert (error.line, error.key) == (line, key) and error.file == str(tmp_path / "file") and "\n" not in str(error)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"null", b"{}", b"[1, 2]", b'"x"', b"==>\n[1]\n"])
def test_no_content_makes_a_reader_fall_over(kind: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    try:
        read_source(kind, path)
    except InputError as error:
        assert str(path) in str(error)


#: Anything that JSON can say, with numbers and texts that break readers.
JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.floats()
    | st.sampled_from([0, -1, 10**60, "", "x", "\ud800", "a\nb", "[bold]", "9" * 5000, "²"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["id", "name", "type", "value", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)
KUBERNETES = {
    "metadata": {"name": "n0", "labels": {"topology.kubernetes.io/zone": "z"}},
    "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}], "capacity": {"nvidia.com/gpu": "8"}},
}
LLDP = {"lldp": {"interface": {"eth1": {"chassis": {"leaf1": {"id": {"value": "x"}}}}}}}


@given(st.data())
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_json_of_the_right_shape_with_anything_in_one_place_is_read_or_is_one_line(tmp_path: Path, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(["kubernetes", "lldp"]))
    told = here = copy.deepcopy(KUBERNETES if kind == "kubernetes" else LLDP)
    while True:
        keys = list(here) if isinstance(here, dict) else list(range(len(here)))
        key = data.draw(st.sampled_from(keys))
        if not (isinstance(here[key], dict | list) and data.draw(st.booleans())):
            break
        here = here[key]
    here[key] = data.draw(JUNK)
    try:
        draft = read(kind, json.dumps(told), tmp_path, "n9.json")
    except InputError as error:
        assert "\n" not in str(error)
        return
    tomllib.loads(to_toml(draft.fleet()))
    show.as_json(draft.fleet())


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: No such file"):
        read_source("slurm", tmp_path / "none")


@given(st.lists(st.from_regex(r"[a-z]{0,3}[0-9]{0,3}-?[a-z]{0,2}[0-9]{0,3}", fullmatch=True).filter(bool), max_size=30))
def test_a_host_list_that_is_written_short_means_the_same_names(names: list[str]) -> None:
    assert sorted(expand(compress(names))) == sorted(set(names))


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("", []),
        ("n1", ["n1"]),
        ("gpu[0-2,07]-a,login", ["gpu0-a", "gpu1-a", "gpu2-a", "gpu07-a", "login"]),
        ("r[1-2]n[01-02]", ["r1n01", "r1n02", "r2n01", "r2n02"]),
    ],
)
def test_host_lists(expression: str, names: list[str]) -> None:
    assert expand(expression) == names


@pytest.mark.parametrize("expression", ["n[", "n]", "n[1-2", "n[a]", "n[3-1]", "n[1-9999999]", "r[1-999]n[1-999]", "n[[1]]"])
def test_what_is_no_host_list_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match=r"hosts|names"):
        expand(expression)
