"""Local disks: full ones are told and told well again; what is not local or cannot be written to is left alone."""

import os
from pathlib import Path

import pytest

from collectors import disks as module
from collectors.disks import Disks, parse_health, parse_mounts, read_health
from collectors.frame.types import Note, NotSupported, Place, Readings
from outrider.config.collectors import CollectorsSection

MOUNTS = (
    "/dev/sda1 / ext4 rw,relatime 0 0\n/dev/sda1 /again ext4 rw 0 0\nproc /proc proc rw 0 0\ntmpfs /run tmpfs rw 0 0\n"
    "/dev/sdb1 /data\\040disk xfs rw 0 0\n/dev/sdc1 /cd ext4 ro 0 0\nnas:/x /net nfs4 rw 0 0\nbroken line\n"
)


def make(folder: Path) -> Disks:
    (folder / "proc").mkdir()
    (folder / "proc/mounts").write_text("/dev/sda1 /full ext4 rw 0 0\n")
    section = CollectorsSection(proc_root=str(folder / "proc"), sysfs_root=str(folder))
    return Disks(Place(node="n1", boot="b", state_dir=str(folder), section=section), Note())


def test_local_file_systems_that_can_be_written_to_are_found_once() -> None:
    assert parse_mounts(MOUNTS) == {"/": "/dev/sda1", "/data disk": "/dev/sdb1"}


def test_a_file_system_that_fills_and_empties_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disks, free = make(tmp_path), [50]

    class Status:
        f_blocks, f_files, f_favail = 1000, 1000, 900

        @property
        def f_bavail(self) -> int:
            return free[0]

    monkeypatch.setattr(module.os, "statvfs", lambda _: Status())
    told = []
    for now, free[0] in enumerate((50, 5, 20, 5, 400)):
        outcome = disks.read(float(now))
        assert isinstance(outcome, Readings)
        told += [(signal.mount, signal.data["ok"], signal.data["error"]) for signal in outcome.signals]
    assert told == [("/full", True, None), ("/full", False, "ENOSPC"), ("/full", True, None)]


def test_health_is_read_from_its_page() -> None:
    assert parse_health(bytes([0x04, 0, 0, 0, 0, 87]) + bytes(506)) == (4, 87)
    assert read_health("/dev/null") is None and read_health("/dev/none") is None


def test_a_file_system_without_inodes_or_gone_is_survived(tmp_path: Path) -> None:
    disks = make(tmp_path)
    assert disks.supported() is None
    outcome = disks.read(0.0)
    assert isinstance(outcome, Readings) and outcome.signals == []
    os.remove(tmp_path / "proc/mounts")
    assert isinstance(disks.supported(), NotSupported)
