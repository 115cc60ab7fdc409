"""Signals are kept in order until everybody has them; what does not fit is dropped oldest first, and counted."""

from pathlib import Path

import msgspec
import pytest

from collectors.agent import spool as module
from collectors.agent.spool import Entry, Spool
from outrider.signals import Signal


def make(folder: Path, witnesses: tuple[str, ...] = ("w1", "w2"), bytes_max: int = 1 << 20) -> Spool:
    return Spool(folder, witnesses, node="n1", boot="b", start=1, bytes_max=bytes_max)


def signal(number: int) -> Signal:
    return Signal(t=float(number), kind="step", value=number)


def values(entries: list[Entry]) -> list[int]:
    return [msgspec.msgpack.decode(entry.body, type=Signal).value for entry in entries]


def take(spool: Spool, witness: str, count: int = 500, size: int = 1 << 20) -> list[Entry]:
    """All that the witness can get at once; one empty answer means that a gap was stepped over."""
    return spool.take(witness, count_max=count, bytes_max=size, wait_seconds=0.0) or spool.take(
        witness, count_max=count, bytes_max=size, wait_seconds=0.0
    )


def test_each_witness_gets_all_in_order_at_its_own_pace(tmp_path: Path) -> None:
    spool = make(tmp_path)
    for number in range(10):
        spool.add(signal(number))
    first = take(spool, "w1", count=4)
    assert values(first) == [0, 1, 2, 3]
    spool.acknowledge("w1", first[-1].number)
    assert values(take(spool, "w1")) == [4, 5, 6, 7, 8, 9]
    assert values(take(spool, "w2")) == list(range(10))
    assert spool.waiting() == {"w1": 6, "w2": 10}


def test_a_batch_is_bounded_in_bytes_but_never_empty(tmp_path: Path) -> None:
    spool = make(tmp_path)
    spool.add(Signal(t=0.0, kind="kernel", text="x" * 10_000))
    spool.add(signal(1))
    assert len(take(spool, "w1", size=100)) == 1


def test_what_nobody_took_is_there_after_a_restart_and_numbers_grow(tmp_path: Path) -> None:
    spool = make(tmp_path)
    names = [spool.add(signal(number)) for number in range(5)]
    spool.begin()
    spool.close()
    again = make(tmp_path)
    entries = take(again, "w2")
    assert values(entries) == [0, 1, 2, 3, 4]
    name = again.add(signal(5))
    assert int(name.rpartition("/")[2]) > int(names[-1].rpartition("/")[2])
    again.acknowledge("w2", entries[-1].number)
    assert values(take(again, "w2")) == [5]


def test_numbers_grow_even_if_the_folder_is_lost(tmp_path: Path) -> None:
    """A witness drops numbers that it knows of this boot: they must not come again."""
    before = make(tmp_path / "a").add(signal(0))
    after = make(tmp_path / "b").add(signal(1))
    assert int(after.rpartition("/")[2]) > int(before.rpartition("/")[2])


def test_a_segment_cut_in_half_is_read_up_to_the_cut(tmp_path: Path) -> None:
    spool = make(tmp_path)
    for number in range(5):
        spool.add(signal(number))
    spool.begin()
    spool.close()
    (segment,) = tmp_path.glob("*.signals")
    segment.write_bytes(segment.read_bytes()[:-3])
    assert values(take(make(tmp_path), "w1")) == [0, 1, 2, 3]


def test_a_witness_that_was_away_too_long_misses_the_oldest_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MEMORY_SIGNALS_MAX", 3)
    spool = make(tmp_path)
    for number in range(10):
        spool.add(signal(number))
    assert values(take(spool, "w1")) == [7, 8, 9]
    assert spool.dropped == 7


def test_the_disk_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SEGMENT_BYTES", 200)
    spool = make(tmp_path, bytes_max=1_000)
    for number in range(200):
        entry = signal(number)
        spool.add(entry)
        with spool._changed:
            fresh = [one for one in spool._memory if one.number > spool._stored]
        spool._store(fresh)
    spool._tidy(0)
    assert spool.disk_bytes() <= 1_200
    assert spool.dropped > 100
    assert sum(path.stat().st_size for path in tmp_path.glob("*.signals")) <= 1_200


def test_a_signal_that_is_too_long_loses_its_text_not_its_meaning(tmp_path: Path) -> None:
    spool = make(tmp_path)
    spool.add(Signal(t=0.0, kind="flight_record", job="j", text="x" * 300_000, data={"attempt": 2, "big": "y" * 300_000}))
    (entry,) = take(spool, "w1")
    kept = msgspec.msgpack.decode(entry.body, type=Signal)
    assert (kept.kind, kept.job, kept.data["attempt"]) == ("flight_record", "j", 2)
    assert len(entry.body) < 5_000


def test_everything_acknowledged_leaves_nothing_on_disk(tmp_path: Path) -> None:
    spool = make(tmp_path, ("w1",))
    for number in range(5):
        spool.add(signal(number))
    spool.begin()
    spool.acknowledge("w1", take(spool, "w1")[-1].number)
    spool.close()
    spool._tidy(spool._acked["w1"])
    assert not list(tmp_path.glob("*.signals"))
