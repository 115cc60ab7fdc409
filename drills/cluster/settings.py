"""The watching side of a site's file for trials on one machine: witnesses, ledger, keys. Drill, benches and tests share it."""

import socket
from collections.abc import Sequence
from pathlib import Path

from outrider.config.security import write_secret
from outrider.config.witness import Member

#: Keys and tokens that `[security]` names, each a file of this name in `<folder>/secrets`.
SECRETS = {"heartbeat": "heartbeat_key_file", "agent": "agent_token_file", "operator": "operator_token_file",
           "viewer": "viewer_token_file"}  # fmt: skip


def free_members(count: int, address: str = "127.0.0.1") -> tuple[Member, ...]:
    """Witnesses w1, w2, .. on free ports of `address`, held together until all are known so that no two are the same."""
    held = [(socket.socket(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) for _ in range(count)]
    for pair in held:
        for one in pair:
            one.bind((address, 0))
    members = tuple(
        Member(name=f"w{number}", address=address, http_port=stream.getsockname()[1], heartbeat_port=datagrams.getsockname()[1])
        for number, (stream, datagrams) in enumerate(held, 1)
    )
    for pair in held:
        for one in pair:
            one.close()
    return members


def make_secrets(folder: Path) -> None:
    """Makes the secrets that are missing; `outrider up` does so by itself."""
    for name in SECRETS:
        write_secret(folder / "secrets" / name)


def watch_settings(folder: Path, members: Sequence[Member], ledger: str = "") -> str:
    """`[witness]`, `[ledger]` and `[security]` of a site that keeps everything in `folder`.

    Args:
        ledger: more lines of `[ledger]`, which is SQLite in `folder` if they say nothing else.
    """
    named = "".join(
        f'[[witness.members]]\nname = "{one.name}"\naddress = "{one.address}"\n'
        f"http_port = {one.http_port}\nheartbeat_port = {one.heartbeat_port}\n"
        for one in members
    )
    keys = "".join(f'{key} = "{folder}/secrets/{name}"\n' for name, key in SECRETS.items())
    return (
        f'[witness]\nstate_dir = "{folder}/witness"\nshared_vantage_ok = true\n{named}'
        f'[ledger]\npath = "{folder}/witness/ledger.db"\n{ledger}\n[security]\n{keys}'
    )
