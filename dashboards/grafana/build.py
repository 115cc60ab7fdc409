"""Makes the dashboards' JSON: `python -m dashboards.grafana.build`, in an environment with requirements/grafana.txt.

The JSON is shipped, so that nobody else needs the builder. Beside it stands the hash of the sources it was made from.
"""

import importlib
import json
import pkgutil
from typing import Any

import dashboards.grafana.boards
from dashboards.grafana.scope import render
from dashboards.grafana.shipped import FOLDER, HASH_FILE, source_hash


def boards() -> dict[str, dict[str, Any]]:
    """File name -> dashboard."""
    made = {}
    for entry in pkgutil.iter_modules(dashboards.grafana.boards.__path__):
        module = importlib.import_module(f"dashboards.grafana.boards.{entry.name}")
        if hasattr(module, "board"):
            board = module.board()
            made[f"{board.uid}.json"] = render(board)
    return made


def text_of(dashboard: dict[str, Any]) -> str:
    """As it stands in the file: stable, readable in a diff."""
    return json.dumps(dashboard, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def main() -> None:
    made = boards()
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*.json"):
        if old.name not in made:
            old.unlink()
    for name, dashboard in made.items():
        (FOLDER / name).write_text(text_of(dashboard), encoding="utf-8")
    HASH_FILE.write_text(source_hash() + "\n", encoding="utf-8")
    print(f"{FOLDER.name}: {len(made)} dashboards")


if __name__ == "__main__":
    main()
