"""The way to a witness: what it cannot read is found and given up, what it refuses for now is kept."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from collectors.agent.spool import Spool
from collectors.agent.transport import WitnessLink
from collectors.emulated.witness import FakeWitness
from outrider.config.witness import Member
from outrider.signals import Signal, decode_batch
from outrider.wire import Order

pytestmark = pytest.mark.real

KEY, TOKEN = b"k" * 32, "t" * 32


class Picky(FakeWitness):
    """Answers `status` to every batch that holds the signal with value 13."""

    status = 400

    def _take(self, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        if any(signal.value == 13 for signal in decode_batch(body)):
            return self.status, b""
        return super()._take(body, headers)


class Bench:
    def __init__(self, folder: Path, witness: FakeWitness, token: str = TOKEN) -> None:
        self.witness, self.orders = witness, list[Order]()
        self.spool = Spool(folder, ("w1",), node="n1", boot="b", start=1, bytes_max=1 << 20)
        member = Member(name="w1", http_port=witness.http_port, heartbeat_port=witness.heartbeat_port)
        self.link = WitnessLink(
            node="n1", boot="b", member=member, token=token, spool=self.spool, wait_seconds=0.2,
            on_orders=lambda _, orders: self.orders.extend(orders),
        )  # fmt: skip

    def add(self, *values: int) -> None:
        for value in values:
            self.spool.add(Signal(t=float(value), kind="step", value=value))


@pytest.fixture
def benches(tmp_path: Path) -> Iterator[list[Bench]]:
    made: list[Bench] = []
    yield made
    for bench in made:
        bench.link.stop()
        bench.witness.close()


@pytest.mark.parametrize("status", [400, 413])
def test_a_signal_that_the_witness_never_takes_is_found_and_given_up(benches: list[Bench], tmp_path: Path, status: int) -> None:
    witness = Picky((KEY,), TOKEN)
    witness.status = status
    bench = Bench(tmp_path, witness)
    benches.append(bench)
    bench.add(*range(20))
    bench.link.begin()
    witness.wait(lambda w: len(w.signals) == 19)
    assert [signal.value for signal in witness.signals] == [value for value in range(20) if value != 13]
    assert bench.link.refused == 1


@pytest.mark.parametrize("status", [401, 429, 500, 503])
def test_a_refusal_for_now_loses_nothing(benches: list[Bench], tmp_path: Path, status: int) -> None:
    witness = FakeWitness((KEY,), TOKEN)
    witness.refuse = status
    bench = Bench(tmp_path, witness)
    benches.append(bench)
    bench.add(1, 2, 3)
    bench.link.begin()
    witness.wait(lambda _: bench.link.errors >= 2)
    assert not bench.link.up or witness.signals == []
    witness.refuse = 0
    witness.wait(lambda w: [signal.value for signal in w.signals] == [1, 2, 3])
    assert bench.link.refused == 0


def test_a_batch_tells_who_sends_it_and_by_which_clock(benches: list[Bench], tmp_path: Path) -> None:
    bench = Bench(tmp_path, FakeWitness((KEY,), TOKEN))
    benches.append(bench)
    bench.add(1)
    bench.link.begin()
    bench.witness.wait(lambda w: w.signals)
    assert bench.witness.headers["Outrider-Node"] == "n1"
    assert bench.witness.headers["Outrider-Boot"] == "b"
    assert float(bench.witness.headers["Outrider-Sent"]) > 0.0


def test_orders_come_through_and_nonsense_does_not_stop_them(benches: list[Bench], tmp_path: Path) -> None:
    bench = Bench(tmp_path, FakeWitness((KEY,), TOKEN))
    benches.append(bench)
    real, answers = bench.witness._next_orders, [b"{broken", msgspec.json.encode([{"number": "x"}])]
    bench.witness._next_orders = lambda after, wait: answers.pop() if answers else real(after, wait)  # type: ignore[method-assign]
    bench.witness.order(number=7, id="a", order="copy", job="j")
    bench.link.begin()
    bench.witness.wait(lambda _: bench.orders)
    assert [order.id for order in bench.orders] == ["a"]
    assert bench.link.errors == 2
