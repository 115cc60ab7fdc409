"""Texts as the tools print them, of one small site: four nodes with two devices each, four leaves, two spines. A helper.

Written after rdma-core's manual pages and sources, Slurm's, Kubernetes's and lldpd's documents; names and numbers are invented.
"""

import json
from typing import Any

NODES = ("n1", "n2", "n3", "n4")


def leaf(node: int, device: int) -> str:
    return f"leaf-{(node - 1) // 2}-{device}"


CABLES = sorted((f"leaf-{pod}-{device}", f"spine-{spine}") for pod in (0, 1) for device in (0, 1) for spine in (0, 1))
GUID = {name: f"{index:016x}" for index, name in enumerate(sorted({*dict(CABLES), "spine-0", "spine-1"}), 0xB8599F0300000000)}


def description(switch: str) -> str:
    return f"MF0;{switch}:MQM9700/U1"


def ibnetdiscover() -> str:
    blocks = ["#\n# Topology file: generated on Mon Nov 30 00:00:00 2026\n#\n# Initiated from node 0c42a10300000101\n"]
    for lid, (switch, guid) in enumerate(GUID.items(), 1):
        lines = [f'vendid=0x2c9\ndevid=0xd2f2\nsysimgguid=0x{guid}\nswitchguid=0x{guid}({guid})\nSwitch\t65 "S-{guid}"\t\t'
                 f'# "{description(switch)}" enhanced port 0 lid {lid} lmc 0']  # fmt: skip
        port = 0
        for node in range(1, 5):
            for device in (0, 1):
                if leaf(node, device) == switch:
                    port += 1
                    ca = f"0c42a103000{node:02x}{device:03x}"
                    lines.append(f'[{port}]\t"H-{ca}"[1]({ca}) \t\t# "n{node} mlx5_{device}" lid {node}{device} 4xNDR')
        for lower, upper in CABLES:
            if switch in (lower, upper):
                port += 1
                other = upper if switch == lower else lower
                lines.append(f'[{port}]\t"S-{GUID[other]}"[{port}]\t\t# "{description(other)}" lid 3 4xNDR')
        lines.append('[65]\t"H-b8599f0300ffff00"[1](b8599f0300ffff00) \t\t# "Mellanox Technologies Aggregation Node" lid 9 4xNDR')
        blocks.append("\n".join(lines) + "\n")
    blocks.append(
        'vendid=0x2c9\ndevid=0x1021\nsysimgguid=0x1\ncaguid=0x1\nCa\t1 "H-0c42a10300001000"\t\t# "n1 mlx5_0"\n'
        f'[1](c42a10300001000) \t"S-{GUID["leaf-0-0"]}"[1]\t\t# lid 10 lmc 0 "{description("leaf-0-0")}" lid 1 4xNDR\n'
    )
    return "\n".join(blocks)


def iblinkinfo(line: bool) -> str:
    """With `line`, one line a port, as with the option `--line`."""
    up = "( 4X     53.125 Gbps Active/  LinkUp)"
    out = []
    for lid, (switch, guid) in enumerate(GUID.items(), 1):
        head = f'0x{guid} "{description(switch):>30}" ' if line else "      "
        peer = "0x0c42a10300000000 " if line else ""
        if not line:
            out.append(f"Switch: 0x{guid} {description(switch)}:")
        names = [f"n{node} mlx5_{device}" for node in range(1, 5) for device in (0, 1) if leaf(node, device) == switch]
        names += [description(upper if switch == lower else lower) for lower, upper in CABLES if switch in (lower, upper)]
        for port, name in enumerate(names, 1):
            out.append(f'{head}{lid:6d} {port:4d}[  ] =={up}==>  {peer}{port:6d} {port:4d}[  ] "{name}" ( )')
        out.append(f'{head}{lid:6d}   64[  ] ==(                Down/ Polling)==>             [  ] "" ( )')
        out.append(f'{head}{lid:6d}   65[  ] =={up}==>  {peer}     9    1[  ] "Mellanox Technologies Aggregation Node" ( )')
    if not line:
        out += [
            "CA: n1 mlx5_0:",
            f'      0x0c42a10300001000     10    1[  ] =={up}==>       1    1[  ] "{description("leaf-0-0")}" ( )',
        ]
    return "\n".join(out) + "\n"


def slurm_tree(shown: bool) -> str:
    """`topology.conf`, or what `scontrol show topology` prints of it."""
    level = (lambda number: f"Level={number} LinkSpeed=1 ") if shown else (lambda number: "")
    lines = [] if shown else ["# the fabric", ""]
    lines += [f"SwitchName=leaf-{pod} {level(0)}Nodes=n[{2 * pod + 1}-{2 * pod + 2}]" for pod in (0, 1)]
    lines.append(f"SwitchName=top {level(1)}{'Nodes=n[1-4] ' if shown else ''}Switches=leaf-[0-1]")
    return "\n".join(lines) + "\n"


def kubernetes(generation: int = 1) -> str:
    """Labels of Topograph: the first names (block, datacenter), the second (leaf, core), the third (numbered tiers)."""
    words = {
        1: ("network.topology.nvidia.com/block", "network.topology.nvidia.com/spine", "network.topology.nvidia.com/datacenter"),
        2: ("network.topology.nvidia.com/leaf", "network.topology.nvidia.com/spine", "network.topology.nvidia.com/core"),
        3: ("fabric.topograph.run/tier-0", "fabric.topograph.run/tier-1", "fabric.topograph.run/tier-2"),
    }[generation]
    domain = "accelerator.topograph.run/domain" if generation == 3 else "network.topology.nvidia.com/accelerator"
    items: list[dict[str, Any]] = []
    for node in range(1, 5):
        pod = (node - 1) // 2
        labels = {"kubernetes.io/hostname": f"n{node}", words[0]: f"leaf-{pod}", words[1]: "spine", words[2]: "core",
                  domain: f"nvl{pod}", "topology.kubernetes.io/zone": f"hall-{pod}"}  # fmt: skip
        addresses = [{"type": "Hostname", "address": f"n{node}"}, {"type": "InternalIP", "address": f"10.0.0.{node}"}]
        status = {"capacity": {"cpu": "96", "nvidia.com/gpu": "8"}, "addresses": addresses}
        items.append({"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{node}", "labels": labels}, "status": status})
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=4)


def lldp(node: int, form: str = "json") -> str:
    """`lldpctl -f json` or `-f json0` of one node: two ports of the fabric, and one of the management network."""
    seen = {"ens0np0": leaf(node, 0), "ens1np0": leaf(node, 1), "eno1": f"mgmt-{(node - 1) // 2}"}
    mac = {"type": "mac", "value": "b8:59:9f:00:00:01"}
    if form == "json0":
        ports = [
            {
                "name": name,
                "via": "LLDP",
                "chassis": [{"id": [mac], "name": [{"value": switch}]}],
                "port": [{"ttl": [{"value": "120"}]}],
            }
            for name, switch in seen.items()
        ]
        return json.dumps({"lldp": [{"interface": ports}]})
    each = [
        {name: {"via": "LLDP", "rid": "1", "chassis": {switch: {"id": mac, "descr": "NOS"}}, "port": {"ttl": "120"}}}
        for name, switch in seen.items()
    ]
    return json.dumps({"lldp": {"interface": each}})
