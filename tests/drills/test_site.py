"""A drill's folder in memory does not outlive it, even if it was killed."""

import os
from pathlib import Path

from drills.drill.site import PREFIX, sweep


def test_only_folders_of_drills_that_are_gone_are_swept(tmp_path: Path) -> None:
    gone = tmp_path / f"{PREFIX}4194305-x"  # above the largest pid that Linux gives
    living, foreign = tmp_path / f"{PREFIX}{os.getpid()}-y", tmp_path / "outrider-other"
    for folder in (gone, living, foreign):
        folder.mkdir()
    assert sweep(tmp_path) == [gone]
    assert living.exists() and foreign.exists() and not gone.exists()
