"""Reports of drills that lie in a folder, as `outrider drill` writes them (`report.json`)."""

from pathlib import Path
from typing import Any, Final

import msgspec

from outrider.wire import UNREADABLE

#: Reports that are listed, the newest first; folders that are looked into; the longest file that is read.
REPORTS_MAX: Final = 100
FOLDERS_MAX: Final = 2_000
BYTES_MAX: Final = 8 << 20


def list_reports(root: Path) -> list[dict[str, Any]]:
    """Reports in `root`, its folders and theirs: `name`, `wall` (seconds since 1970), `faults`, `right`."""
    found: list[dict[str, Any]] = []
    for path in _paths(root):
        report = _read(path)
        if report is not None:
            faults = [fault for fault in report["faults"] if isinstance(fault, dict)]
            found.append({
                "name": path.parent.relative_to(root).as_posix(), "wall": path.stat().st_mtime,
                "faults": [str(fault.get("fault", "")) for fault in faults],
                "right": sum(fault.get("ok") is True for fault in faults),
            })  # fmt: skip
    found.sort(key=lambda report: report["wall"], reverse=True)
    return found[:REPORTS_MAX]


def read_report(root: Path, name: str) -> dict[str, Any] | None:
    """One report by the name that the list gave; None: there is none of that name."""
    for path in _paths(root):
        if path.parent.relative_to(root).as_posix() == name:
            return _read(path)
    return None


def _paths(root: Path) -> list[Path]:
    """Only these are ever opened: a name from outside is compared, never joined to a path."""
    try:
        first = [entry for entry in sorted(root.iterdir()) if entry.is_dir()][:FOLDERS_MAX]
        second = [inner for entry in first for inner in sorted(entry.iterdir()) if inner.is_dir()][:FOLDERS_MAX]
    except OSError:
        return []
    return [path for folder in (root, *first, *second) if (path := folder / "report.json").is_file()]


def _read(path: Path) -> dict[str, Any] | None:
    try:
        if path.stat().st_size > BYTES_MAX:
            return None
        report = msgspec.json.decode(path.read_bytes())
    except (OSError, *UNREADABLE):
        return None
    return report if isinstance(report, dict) and isinstance(report.get("faults"), list) else None
