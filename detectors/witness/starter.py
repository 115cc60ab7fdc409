"""The settings that `outrider up` writes where there are none: everything on this machine, watching only."""

import socket
from pathlib import Path

from outrider.errors import InputError

#: First ports of the three witnesses; 9470-9479 are the agent's (`outrider.config.agent`).
HTTP_PORT, HEARTBEAT_PORT = 9481, 9491


def write_starter(path: Path) -> None:
    """Writes a site of one machine to `path`, which must not exist.

    Raises:
        InputError: it cannot be written.
    """
    text = _settings(path.resolve().parent / "outrider-state")
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", file=str(path)) from None


def _settings(state: Path) -> str:
    cards = Path("/proc/driver/nvidia/gpus")
    gpus = sum(1 for _ in cards.iterdir()) if cards.is_dir() else 0
    members = "".join(
        f'\n[[witness.members]]\nname = "w{index + 1}"\n'
        f"http_port = {HTTP_PORT + index}\nheartbeat_port = {HEARTBEAT_PORT + index}\n"
        for index in range(3)
    )
    return f"""# Written by `outrider up`: one machine, three witnesses, nothing touched. Change it; `outrider doctor` checks it.
[site]
name = "local"
mode = "observe"    # "advise": a person decides; "act": Outrider acts by itself

[[fleet.nodes]]
node = "{socket.gethostname()}"
address = "127.0.0.1"
gpus = {gpus}

[witness]
state_dir = "{state}"
shared_vantage_ok = true    # all three fall together with this machine; put them on several in earnest
{members}
[ledger]
path = "{state}/ledger.db"

[security]    # `outrider up` makes the files that are missing
heartbeat_key_file = "{state}/secrets/heartbeat"
agent_token_file = "{state}/secrets/agent"
operator_token_file = "{state}/secrets/operator"
viewer_token_file = "{state}/secrets/viewer"
"""
