"""Takes batches of signals in: decodes, drops what was told before, and moves agents' times to this witness's clock. Pure."""

from collections import Counter, OrderedDict

import msgspec

from outrider.signals import Signal, decode_batch
from outrider.wire import signal_number


class Intake:
    """Remembers for each sender (node and boot) the number of its last signal.

    A sender numbers its signals in order, so one number tells what is new. Signals without a name are taken as they are.
    `senders_max` bounds the memory: the sender heard least recently is forgotten, and its repeats would be taken twice, which the
    core bears.
    """

    def __init__(self, senders_max: int) -> None:
        self._last: OrderedDict[str, int] = OrderedDict()
        self._senders_max = senders_max
        self.counts: Counter[str] = Counter()

    def take(self, body: bytes, now: float, sent: float | None, boot: str | None) -> tuple[list[Signal], str | None]:
        """The signals in `body` that are new, with times on this witness's clock, and the name of the batch's last signal.

        Args:
            now: this witness's clock, seconds.
            sent: the sender's clock when it sent the batch, seconds; None: unknown.
            boot: the boot of the sender's machine to which `sent` belongs.

        Raises:
            msgspec.MsgspecError: the body is no batch of signals.
        """
        fresh, last = [], None
        for signal in decode_batch(body):
            last = signal.id or last
            if self._told_before(signal.id):
                self.counts["duplicate"] += 1
            else:
                fresh.append(_on_our_clock(signal, now, sent, boot))
        self.counts["taken"] += len(fresh)
        return fresh, last

    def forget(self, signals: list[Signal]) -> None:
        """Signals that were not judged after all will come again: they count as not told, and so does what followed them."""
        for signal in signals:
            sender, place = _sender(signal.id), signal_number(signal.id)
            if sender is not None and place is not None and self._last.get(sender, -1) >= place:
                self._last[sender] = place - 1

    def _told_before(self, name: str | None) -> bool:
        sender, number = _sender(name), signal_number(name)
        if sender is None or number is None:
            return False
        known = self._last.get(sender)
        if known is not None and number <= known:
            return True
        self._last[sender] = number
        self._last.move_to_end(sender)
        if len(self._last) > self._senders_max:
            self._last.popitem(last=False)
        return False


def _sender(name: str | None) -> str | None:
    """Node and boot of a name made by `signal_id`: its numbers grow over the agent's restarts. None: no such name."""
    parts = (name or "").rsplit("/", 3)
    return f"{parts[0]}/{parts[1]}" if len(parts) == 4 else None


def _on_our_clock(signal: Signal, now: float, sent: float | None, boot: str | None) -> Signal:
    """`t` becomes the arrival; `data.observed_s` the moment it was made, as our clock would have shown it.

    A signal from before the sender's last boot is of unknown age: it counts as made at time 0, before everything.
    """
    if sent is None:
        return msgspec.structs.replace(signal, t=now)
    age = max(0.0, sent - signal.t) if _same_boot(signal.id, boot) else now
    earlier = signal.data.get("observed_s")
    if isinstance(earlier, int | float) and not isinstance(earlier, bool):
        age = max(age, sent - earlier) if age < now else now
    return msgspec.structs.replace(signal, t=now, data={**signal.data, "observed_s": now - age})


def _same_boot(name: str | None, boot: str | None) -> bool:
    parts = (name or "").rsplit("/", 3)
    return boot is None or len(parts) != 4 or parts[1] == boot
