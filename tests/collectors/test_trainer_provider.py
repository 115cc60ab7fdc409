"""Trainers without the SDK, and what a cloud provider announces: against small servers and files in their public forms."""

import http.server
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from collectors.frame.types import CollectorError, Note, NotSupported, Place, Readings
from collectors.provider import Provider
from collectors.tensorboard import BadRecordError, parse_event, split_records
from collectors.trainer import EventFolder, Trainer, name_of
from outrider.config.collectors import CollectorsSection


def place(folder: Path, **fields: Any) -> Place:
    return Place(node="n1", boot="b", state_dir=str(folder), section=CollectorsSection(**fields))


class Pages:
    """Serves fixed texts by path; what is not there is 404. `headers` are those of the last request."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.headers: dict[str, str] = {}
        pages = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                pages.headers = dict(self.headers)
                text = pages.texts.get(self.path)
                self.send_response(200 if text is not None else 404)
                self.send_header("Content-Length", str(len(text or "")))
                self.end_headers()
                self.wfile.write((text or "").encode())

            do_PUT = do_GET

            def log_message(self, *_: Any) -> None:
                pass

        self._server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=lambda: self._server.serve_forever(poll_interval=0.02), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def pages() -> Iterator[Pages]:
    made = Pages()
    yield made
    made.close()


def varint(number: int) -> bytes:
    out = b""
    while number > 0x7F:
        out, number = out + bytes([number & 0x7F | 0x80]), number >> 7
    return out + bytes([number])


def scalar(step: int, tag: str, value: float, *, tensor: bool = False) -> bytes:
    """One event with one scalar, as `event.proto` has it."""
    packed = struct.pack("<f", value)
    body = b"\x0a" + varint(len(tag)) + tag.encode()
    if tensor:
        inner = b"\x08\x01" + b"\x2a" + varint(4) + packed
        body += b"\x42" + varint(len(inner)) + inner
    else:
        body += b"\x15" + packed
    summary = b"\x0a" + varint(len(body)) + body
    return b"\x09" + struct.pack("<d", 1.0) + b"\x10" + varint(step) + b"\x2a" + varint(len(summary)) + summary


def record(event: bytes) -> bytes:
    return struct.pack("<QI", len(event), 0) + event + b"\0\0\0\0"


@pytest.mark.parametrize("tensor", [False, True], ids=["simple value", "tensor"])
def test_scalars_are_read(tensor: bool) -> None:
    (found,) = parse_event(scalar(300, "train/loss", 2.5, tensor=tensor))
    assert found == (300, "train/loss", 2.5)


def test_half_a_record_waits_and_a_giant_one_is_an_error() -> None:
    blob = record(scalar(1, "loss", 1.0)) + record(scalar(2, "loss", 0.5))
    records, taken = split_records(blob[:-3])
    assert len(records) == 1 and taken == len(record(scalar(1, "loss", 1.0)))
    with pytest.raises(BadRecordError):
        split_records(b"\xff" * 100)
    for cut in range(len(blob)):
        parse_event(scalar(1, "loss", 1.0)[:cut])


def test_a_folder_is_followed_from_its_end_and_the_newest_step_told(tmp_path: Path) -> None:
    path = tmp_path / "events.out.tfevents.1.host"
    path.write_bytes(record(scalar(1, "loss", 3.0)))
    trainer = Trainer(place(tmp_path, tensorboard_dir=str(tmp_path), train_job="j1"), Note())
    assert trainer.supported() is None
    first = trainer.read(0.0)
    assert isinstance(first, Readings) and first.signals == []
    with open(path, "ab") as file:
        file.write(record(scalar(2, "train/loss", 2.0)) + record(scalar(3, "train/loss", 1.5)) + record(scalar(3, "lr", 0.5)))
    second = trainer.read(2.0)
    assert isinstance(second, Readings)
    (signal,) = second.signals
    assert (signal.kind, signal.value, signal.job, signal.data) == ("step", 3, "j1", {"loss": 1.5, "lr": 0.5})


def test_a_damaged_folder_is_an_error(tmp_path: Path) -> None:
    folder = EventFolder(tmp_path)
    assert folder.scalars() == []
    (tmp_path / "events.out.tfevents.2").write_bytes(b"\xff" * 100)
    with pytest.raises(BadRecordError):
        folder.scalars()


@pytest.mark.parametrize(
    ("name", "figure"),
    [
        ("megatron_train_loss", "loss"),
        ("app:global_step", "step"),
        ("train_step_total", "step"),
        ("node_load1", None),
        ("closs", None),
    ],
)
def test_names_are_known_by_their_ends(name: str, figure: str | None) -> None:
    assert name_of(name) == figure


def test_a_trainers_page_is_read(pages: Pages, tmp_path: Path) -> None:
    pages.texts["/metrics"] = "# HELP x\ntrain_step 12\ntrain_loss 1.25\nbroken{ 1\nother 5\n"
    trainer = Trainer(place(tmp_path, train_page_url=pages.url + "/metrics", train_job="j2"), Note())
    outcome = trainer.read(0.0)
    assert isinstance(outcome, Readings)
    assert [(s.value, s.job, s.data) for s in outcome.signals] == [(12, "j2", {"loss": 1.25})]
    again = trainer.read(2.0)
    assert isinstance(again, Readings) and again.signals == []
    pages.texts["/metrics"] = "other 5\n"
    with pytest.raises(CollectorError, match="no metric of it is a step"):
        trainer.read(4.0)
    trainer.close()


def aws(pages: Pages) -> None:
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 90))
    pages.texts["/latest/meta-data/spot/instance-action"] = f'{{"action": "terminate", "time": "{stamp}"}}'


def gcp(pages: Pages) -> None:
    pages.texts["/computeMetadata/v1/instance/preempted"] = "TRUE"


def azure(pages: Pages) -> None:
    stamp = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 40))
    event = f'{{"EventId": "1", "EventType": "Preempt", "NotBefore": "{stamp}"}}'
    pages.texts["/metadata/scheduledevents?api-version=2020-07-01"] = f'{{"Events": [{event}]}}'


@pytest.mark.parametrize(
    ("provider", "announce", "event", "low", "high"),
    [
        ("aws", aws, "spot terminate", 60, 91),
        ("gcp", gcp, "preempted", 30, 30),
        ("azure", azure, "preempt", 20, 41),
    ],
)
def test_a_notice_is_told_once_with_the_time_that_is_left(
    pages: Pages, tmp_path: Path, provider: str, announce: Callable[[Pages], None], event: str, low: float, high: float
) -> None:
    pages.texts["/latest/api/token"] = "secret"
    collector = Provider(place(tmp_path, provider=provider, provider_url=pages.url), Note())
    quiet = collector.read(0.0)
    assert isinstance(quiet, Readings) and quiet.signals == []
    announce(pages)
    told = collector.read(5.0)
    assert isinstance(told, Readings)
    (signal,) = told.signals
    assert (signal.kind, signal.data["event"]) == ("reclaim", event)
    assert low <= float(signal.value or 0) <= high
    again = collector.read(10.0)
    assert isinstance(again, Readings) and again.signals == []
    collector.close()


def test_a_metadata_service_that_talks_nonsense_is_an_error(pages: Pages, tmp_path: Path) -> None:
    pages.texts["/metadata/scheduledevents?api-version=2020-07-01"] = "<html>"
    collector = Provider(place(tmp_path, provider="azure", provider_url=pages.url), Note())
    with pytest.raises(CollectorError, match="not JSON"):
        collector.read(0.0)
    collector.close()


def test_both_are_off_by_default(tmp_path: Path) -> None:
    assert isinstance(Provider(place(tmp_path), Note()).supported(), NotSupported)
    assert isinstance(Trainer(place(tmp_path), Note()).supported(), NotSupported)
