"""A cell: the part of the fleet that an episode needs, with its racks, rails, job and spares."""

from dataclasses import dataclass

from drills.simulate.options import Options
from outrider.fleet import Fleet, Job, Node

#: Nodes in a cell at the least: enough probers in other racks, and one silent node is far below the mass brakes.
NODES_MIN = 24
#: A cell holds this many nodes for each victim, so that a rack of victims stays below the brake's tenth of the fleet.
NODES_PER_VICTIM = 13
#: Spares at the least; a cell has one for each victim, for the accounts assume that spares suffice.
SPARES_MIN = 2
NICS = 4
#: Racks behind one leaf switch of each rail.
RACKS_PER_POD = 4
JOB = "train"


@dataclass(frozen=True, slots=True)
class Cell:
    """The nodes by name in the fleet's order, spares last; `members` are those of the job."""

    fleet: Fleet
    members: tuple[str, ...]
    spares: tuple[str, ...]
    gpus: int

    def ranks(self, node: str) -> range:
        """Ranks of the job on a node, at its first start."""
        first = self.members.index(node) * self.gpus
        return range(first, first + self.gpus)


def name_of(index: int) -> str:
    """The name of the fleet's node number `index`, from 0."""
    return f"n{index:05d}"


def build(options: Options, victims: tuple[int, ...], witnesses: tuple[str, ...], spares_max: int = 1_000) -> Cell:
    """A cell around the victims: their racks, the racks behind the same switches, then the next ones, round the fleet's end."""
    size = min(options.nodes, max(NODES_MIN, NODES_PER_VICTIM * len(victims)))
    chosen = dict.fromkeys(victims)
    racks = list(dict.fromkeys(victim // options.rack for victim in victims))
    pods = [rack // RACKS_PER_POD * RACKS_PER_POD + step for rack in racks for step in range(RACKS_PER_POD)]
    total = (options.nodes + options.rack - 1) // options.rack
    first = racks[0] if racks else 0
    for rack in (*racks, *pods, *((first + step) % total for step in range(total))):
        if len(chosen) >= size:
            break
        for index in range(rack * options.rack, min((rack + 1) * options.rack, options.nodes)):
            if len(chosen) < size:
                chosen.setdefault(index)
    members = tuple(name_of(index) for index in sorted(chosen))
    nodes = [_node(index, options) for index in sorted(chosen)]
    spares = tuple(f"spare{number}" for number in range(min(spares_max, max(SPARES_MIN, len(victims)))))
    nodes += [
        Node(node=name, rack="spares", gpus=options.gpus_per_node, address=f"10.255.0.{i + 1}") for i, name in enumerate(spares)
    ]
    slots = tuple((name, gpu) for name in members for gpu in range(options.gpus_per_node))
    width, count = options.gpus_per_node, len(members)
    groups = {
        "tp": tuple(tuple(range(node * width, (node + 1) * width)) for node in range(count)),
        "dp": tuple(tuple(gpu + node * width for node in range(count)) for gpu in range(width)),
    }
    job = Job(job=JOB, slots=slots, groups=groups)
    fleet = Fleet(nodes=tuple(nodes), jobs=(job,), witnesses=witnesses, spares=spares)
    return Cell(fleet, members, spares, options.gpus_per_node)


def _node(index: int, options: Options) -> Node:
    rack = index // options.rack
    pod = rack // RACKS_PER_POD
    return Node(
        node=name_of(index), rack=f"r{rack:04d}", gpus=options.gpus_per_node,
        nics={f"mlx5_{rail}": f"leaf{pod}-{rail}" for rail in range(NICS)},
        switch=f"mgmt{pod}",
        address=f"10.{index >> 16 & 255}.{index >> 8 & 255}.{index & 255}",
        pcis=tuple(pci_of(gpu) for gpu in range(options.gpus_per_node)),
        uuids=tuple(uuid_of(name_of(index), gpu) for gpu in range(options.gpus_per_node)),
    )  # fmt: skip


def pci_of(gpu: int) -> str:
    """PCI address of a GPU."""
    return f"0000:{0x10 + 4 * gpu:02x}:00"


def uuid_of(node: str, gpu: int) -> str:
    """A GPU's UUID; whoever reads it may rely on nothing but its being unique."""
    return f"GPU-{node}-{gpu}"
