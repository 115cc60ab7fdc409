"""Prefixes: who printed a line and when."""

import pytest

from outrider.parsers.prefixes import origin, plain, stamp, with_year


@pytest.mark.parametrize(
    ("line", "rank", "node"),
    [
        ("[rank3]:[E1103 04:13:00.5 ProcessGroupNCCL.cpp:632] [PG ID 0 PG GUID 0(default_pg) Rank 1] text", 3, None),
        ("[Rank 7] text", 7, None),
        ("[rank5] 2026-11-03 04:04:11 loader", 5, None),
        ("[gn-062][rank27] 2026-04-19 09:41:02,117 text", 27, "gn-062"),
        ("[gn-062 rank 27 INFO] text", 27, "gn-062"),
        ("[rank=5/64] text", 5, None),
        ("12: Traceback", 12, None),
        ("rank 4: text", 4, None),
        ("2026-04-19 09:41:02 rank4: text", 4, None),
        ("[PG ID 2 PG GUID 7(tp_1) Rank 1] text", None, None),
        ("gn-131:7741:7802 [1] transport/net.cc:1 NCCL WARN x", None, "gn-131"),
        ("Nov  3 04:04:11 gn-020 python3[123]: text", None, "gn-020"),
        ("[pod/train-worker-3/pytorch] text", None, "train-worker-3"),
        ("[INFO] text", None, None),
        ("plain text about rank and file", None, None),
    ],
)
def test_the_printer_is_named_by_its_prefix(line: str, rank: int | None, node: str | None) -> None:
    who = origin(line)
    assert (who.rank, who.node) == (rank, node)


def test_torchrun_tee_names_the_local_rank() -> None:
    assert origin("[default3]: iteration 10").local_rank == 3


def test_nccl_prefix_names_process_and_device() -> None:
    who = origin("[2026-06-11 03:12:40] gn-131:7741:7790 [1] NCCL WARN x")
    assert (who.node, who.pid, who.gpu) == ("gn-131", 7741, 1)


@pytest.mark.parametrize(
    ("line", "seconds", "yearless"),
    [
        ("[2026-06-11 03:12:40] x", 1781147560.0, False),
        ("2026-06-11T03:12:40.250Z x", 1781147560.25, False),
        ("[Thu Jun 11 03:12:40 2026] x", 1781147560.0, False),
        ("CANCELLED AT 2026-06-11T03:12:40 DUE", 1781147560.0, False),
        ("[rank0]:[E611 03:12:40.5 x.cpp:1] x", 960693160.5, True),
        ("[rank0]:[E1103 03:12:40.5 x.cpp:1] x", 973221160.5, True),
        ("Jun 11 03:12:40 host x", 960693160.0, True),
    ],
)
def test_stamps_of_all_loggers(line: str, seconds: float, yearless: bool) -> None:
    assert stamp(line) == (seconds, yearless)


@pytest.mark.parametrize("line", ["no stamp", "2026-13-40 25:61:00", "[E9999 99:99:99.1 x]", "1234567890"])
def test_what_is_no_stamp_gives_none(line: str) -> None:
    assert stamp(line) is None


def test_a_yearless_stamp_moves_to_its_year() -> None:
    told = stamp("[E611 03:12:40.5 x.cpp:1] x")
    assert told is not None and with_year(told.seconds, 2026) == 1781147560.5


def test_colours_and_progress_bars_are_taken_off() -> None:
    assert plain("\x1b[31mred\x1b[0m") == "red"
    assert plain("10%\r20%\r30%") == "30%"
