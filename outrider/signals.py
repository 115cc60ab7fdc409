"""The signal: one observed fact, and the table of the kinds there are.

A signal is what collectors make, agents send, witnesses judge and traces record. The table `KINDS` is the vocabulary:
each kind has one evidence layer. Needs msgspec (extra `cli`); the SDK inside a training job does not import this module.
"""

from typing import Any, Final, Literal

import msgspec

Layer = Literal["hardware", "communication", "application", "operator"]

#: kind -> evidence layer. A kind that is not here is counted as unknown and never judged.
KINDS: Final[dict[str, Layer]] = {
    "heartbeat": "hardware",
    "probe": "hardware",
    "xid": "hardware",
    "sxid": "hardware",
    "ecc": "hardware",
    "row_remap": "hardware",
    "nvlink": "hardware",
    "pcie": "hardware",
    "gpu_state": "hardware",
    "gpu_count": "hardware",
    "driver_call": "hardware",
    "link": "hardware",
    "port_counters": "hardware",
    "kernel": "hardware",
    "storage": "hardware",
    "reclaim": "hardware",
    "collective_timeout": "communication",
    "collective_error": "communication",
    "flight_record": "communication",
    "step": "application",
    "phase": "application",
    "process_exit": "application",
    "snapshot": "application",
    "maintenance": "operator",
    "witness": "operator",
    # Extension of the design's table: a job tells its members (value: attempt; data: slots, groups, limits, synchronous).
    "job": "operator",
}

PHASES: Final = ("init", "compile", "train", "data", "checkpoint", "eval", "idle", "end")

#: Subject keys, in the order in which people read them.
SUBJECT_KEYS: Final = (
    "node", "gpu", "pci", "uuid", "nic", "port", "link", "switch", "mount", "server", "job", "rank", "process",
    "snapshot", "witness",
)  # fmt: skip


class Signal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One observed fact.

    `t` is when it reached the observer, seconds on the observer's monotonic clock; `kind` a key of `KINDS`; the subject
    keys say whom it is about; `text` is the raw line, kept as evidence. `data.attempt` says which start of the job it
    belongs to, `data.boot` which boot of the machine, `data.observed_s` when it happened if it is told late.
    """

    t: float
    kind: str
    node: str | None = None
    gpu: int | None = None
    pci: str | None = None
    uuid: str | None = None
    nic: str | None = None
    port: int | str | None = None
    link: int | None = None
    switch: str | None = None
    mount: str | None = None
    server: str | None = None
    job: str | None = None
    rank: int | None = None
    process: int | str | None = None
    snapshot: str | None = None
    witness: str | None = None
    source: str | None = None
    value: float | int | str | None = None
    data: dict[str, Any] = msgspec.field(default_factory=dict)
    text: str | None = None
    #: Names the signal for deduplication: "<node>/<boot>/<agent start>/<number>"; empty in traces.
    id: str | None = None

    def subject(self) -> dict[str, Any]:
        """The subject keys that are set, in reading order."""
        return {key: value for key in SUBJECT_KEYS if (value := getattr(self, key)) is not None}


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(list[Signal])


def encode_batch(signals: list[Signal]) -> bytes:
    """The compact wire form of a list of signals (MessagePack)."""
    return _ENCODER.encode(signals)


def decode_batch(body: bytes) -> list[Signal]:
    """Reads what `encode_batch` wrote.

    Raises:
        msgspec.MsgspecError: the bytes are not a list of signals.
    """
    return _DECODER.decode(body)
