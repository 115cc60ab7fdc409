"""The progress page and the copy area: what one side writes the other reads, whole or not at all."""

import math
import os
import struct
import threading

import pytest

from outrider.sdk import area, cells, page
from outrider.sdk.area import CopyArea, Label


@pytest.fixture
def path(tmp_path):
    target = tmp_path / "progress"
    page.create(target, attempt=3, slot=2)
    return target


def test_a_fresh_page_says_that_nothing_is_known(path):
    reader = page.Reader(page.open_page(path))
    assert (reader.attempt, reader.slot) == (3, 2)
    assert reader.side() == cells.SideCell()
    cell = reader.trainer()
    assert (cell.step, cell.open, cell.phase) == (-1, -1, "init")
    assert math.isnan(cell.loss)


def test_the_agent_reads_a_step_in_flight_and_then_finished(path):
    writer, reader = page.Writer(page.open_page(path)), page.Reader(page.open_page(path))
    writer.tell_phase("train", 5)
    writer.begin(7, 100)
    writer.moving()
    cell = reader.trainer()
    assert (cell.open, cell.open_begin_ns, cell.step, cell.motion & 1, cell.phase) == (7, 100, -1, 1, "train")
    writer.end(7, 100, 200, (1.5, 0.5, 0.1, 512.0, 0.01, math.nan, math.nan))
    cell = reader.trainer()
    assert (cell.open, cell.step, cell.begin_ns, cell.end_ns, cell.motion & 1) == (-1, 7, 100, 200, 0)
    assert (cell.loss, cell.tokens) == (1.5, 512.0)


def test_a_writer_that_died_in_the_middle_reads_as_unknown(path):
    memory = page.open_page(path)
    struct.pack_into("<Q", memory, page.TRAINER_AT, 41)
    assert page.Reader(memory).trainer() is None


def test_codes_that_make_no_sense_read_as_unknown(path):
    memory = page.open_page(path)
    memory[page.TRAINER_AT : page.COMMAND_AT] = b"\xfe" * (page.COMMAND_AT - page.TRAINER_AT)
    assert page.Reader(memory).trainer() is None
    assert page.Reader(memory).side() is None


def test_a_command_comes_through_with_its_ranks_and_only_once(path):
    agent, side = page.CommandWriter(page.open_page(path)), page.SideWriter(page.open_page(path))
    assert side.command(0) is None
    number = agent.write("publish", step=41, fence=7, deadline_ns=9, incident="ab12", ranks=[0, 3, 9000])
    command = side.command(0)
    assert command == cells.CommandCell(
        number=number, command="publish", step=41, fence=7, deadline_ns=9, incident="ab12", ranks=(0, 3, 9000)
    )
    assert side.command(number) is None


def test_a_new_agent_goes_on_from_the_number_it_finds(path):
    page.CommandWriter(page.open_page(path)).write("copy")
    assert page.CommandWriter(page.open_page(path)).write("drop") == 2


def test_a_torn_command_is_not_obeyed(path):
    memory = page.open_page(path)
    page.CommandWriter(memory).write("exit", fence=3)
    memory[page.COMMAND_AT + 24] ^= 1
    assert page.SideWriter(memory).command(0) is None


def test_ranks_beyond_the_bitmap_mean_everybody(path):
    memory = page.open_page(path)
    page.CommandWriter(memory).write("publish", ranks=[0, page.RANKS_MAX])
    assert page.SideWriter(memory).command(0).ranks == ()


def test_going_over_to_another_page_takes_the_state_along(path):
    writer = page.Writer(page.private_page())
    writer.tell_phase("train", 5)
    writer.end(4, 1, 2, (0.5,) * 7)
    memory = page.open_page(path)
    writer.move_to(memory)
    assert page.Reader(memory).trainer().step == 4


def test_a_page_made_again_is_another_file(path):
    before = os.stat(path).st_ino
    old = page.open_page(path)
    page.create(path, attempt=4, slot=2)
    assert os.stat(path).st_ino != before
    page.Writer(old).end(99, 1, 2, (0.0,) * 7)
    assert page.Reader(page.open_page(path)).trainer().step == -1


def test_what_is_no_page_is_refused(tmp_path):
    (tmp_path / "x").write_bytes(b"\0" * page.PAGE_BYTES)
    with pytest.raises(ValueError, match="not a progress page"):
        page.open_page(tmp_path / "x")


def test_readers_never_see_a_mixture_of_two_steps(path):
    memory, done = page.open_page(path), threading.Event()

    def write() -> None:
        writer = page.Writer(memory)
        for step in range(20_000):
            writer.end(step, step, step, (float(step),) * 7)
        done.set()

    thread = threading.Thread(target=write)
    thread.start()
    reader = page.Reader(page.open_page(path))
    while not done.is_set():
        cell = reader.trainer()
        if cell is not None and cell.step >= 0:
            assert cell.step == cell.begin_ns == cell.end_ns == cell.loss
    thread.join()


def test_the_newest_whole_copy_is_found_whatever_half_it_is_in(tmp_path):
    area.create(tmp_path / "copy", copy_bytes=5000)
    mine, agent = CopyArea.open(tmp_path / "copy"), CopyArea.open(tmp_path / "copy")
    assert (agent.whole(), agent.steps(), agent.spare()) == ([], (-1, -1), 0)
    mine.mark(Label(half=0, state="whole", step=4, length=7, cause="stall"))
    mine.mark(Label(half=1, state="writing", step=5, length=7))
    assert [label.step for label in agent.whole()] == [4]
    assert agent.spare() == 1
    mine.mark(Label(half=1, state="whole", step=5, length=7))
    assert [label.step for label in agent.whole()] == [5, 4]
    assert len(agent.view(agent.whole()[0])) == 7
    mine.drop()
    assert agent.whole() == []


def test_a_damaged_label_reads_as_empty(tmp_path):
    area.create(tmp_path / "copy", copy_bytes=100)
    mine = CopyArea.open(tmp_path / "copy")
    mine.mark(Label(half=0, state="whole", step=4, length=7))
    mine.memory[80] ^= 255
    assert mine.whole() == []
