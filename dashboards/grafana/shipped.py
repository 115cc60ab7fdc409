"""The dashboards as they are shipped, and from which sources they were made. Standard library only."""

import hashlib
import json
from pathlib import Path
from typing import Any, Final

_HERE: Final = Path(__file__).parent
#: Where the JSON stands.
FOLDER: Final = _HERE / "json"
#: Hash of the sources from which it was made.
HASH_FILE: Final = FOLDER / "SOURCES.sha256"
#: What the JSON depends on, beside every module in `boards/`.
_BUILDERS: Final = ("kit.py", "scope.py", "../../alerts/rules/recording.py")


def source_hash() -> str:
    """One hash over the builders' sources."""
    digest = hashlib.sha256()
    boards = sorted(f"boards/{path.name}" for path in (_HERE / "boards").glob("*.py"))
    for name in (*_BUILDERS, *boards):
        digest.update(f"{name}\n".encode() + (_HERE / name).read_bytes())
    return digest.hexdigest()


def dashboards() -> dict[str, dict[str, Any]]:
    """File name -> dashboard, as shipped."""
    return {path.name: json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))}
