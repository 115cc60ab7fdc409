"""Running counters of network ports, and what their modules complain of: error rates, blinks that nobody saw, pause frames."""

from detectors.core.rules.port_book import SAME_BLINK_SECONDS, PortBook
from detectors.core.rules.shared_ports import Port
from outrider.signals import Signal

#: Error counter -> growth per second, in two readings running, that a healthy link does not show, and what it counts in words.
#: Source: the thresholds of public monitors (NVSentinel nic-health-monitor), the laxer where they differ.
ERROR_RATES = {
    "symbol_error": (10.0, "symbol errors"),
    "port_rcv_errors": (10.0, "broken packets received"),
    "link_error_recovery": (5 / 60, "recoveries of the link"),
    "local_link_integrity_errors": (1.0, "link integrity errors"),
    "excessive_buffer_overrun_errors": (1.0, "receive buffer overruns"),
    "rx_crc_errors_phy": (10.0, "packets with a wrong CRC"),
    "rx_symbol_err_phy": (10.0, "symbol errors"),
    # Blocks that error correction could not mend: each is a lost packet. A healthy link has none for hours (IEEE 802.3: a frame
    # loss below 1e-10); the same laxer threshold as for other errors keeps a link that trains out.
    "fec_uncorrectable_blocks": (10.0, "blocks beyond correction (lost packets)"),
}
#: Alarms of the light, which a port without a link has: nobody sends it any, and its own lasers may be off.
_LIGHT = ("receive_power", "transmit_power", "bias")
#: Pause frames a second that a device sends because it cannot take more; some are normal on a lossless fabric.
PAUSES_PER_SECOND = 1000.0


class PortCounters:
    """Judges counters for one witness.

    Args:
        book: the ports.
    """

    def __init__(self, book: PortBook) -> None:
        self._book = book

    def read(self, signal: Signal, now: float) -> None:
        """Running counters of a port."""
        port = self._book.find(signal)
        if port is None:
            return
        if (alarms := signal.data.get("module_alarms")) is not None:
            self._module(port, signal, [str(alarm) for alarm in alarms], now)
            return
        seconds, port.read_t = now - port.read_t, now
        for name, value in signal.data.items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            before = port.counters.get(name)
            port.counters[name] = value
            if before is not None and seconds > 0:
                self._grown(port, name, max(0.0, value - before), seconds, now)

    def _module(self, port: Port, signal: Signal, alarms: list[str], now: float) -> None:
        """The port's cable, optical module or card complains by itself (too hot, no light, ..), or no longer does.

        On a dark port the light proves nothing: an empty socket is no fault, and a link that fell is told as that, with the
        module's word beside it.
        """
        if signal.data.get("up") is False:
            if port.down_since is not None and alarms:
                self._book.note(port, signal, now, ", ".join(alarms[:6]))
            alarms = [alarm for alarm in alarms if not alarm.startswith(_LIGHT)]
        if not alarms:
            self._book.restore(port, now, "its module complains no more", "module")
            return
        text = f"the module of {port.nic} port {port.port} of {port.node} complains: {', '.join(alarms[:6]).replace('_', ' ')}"
        self._book.note(port, signal, now, text)
        self._book.degrade(port, now, text, "module")

    def _grown(self, port: Port, name: str, growth: float, seconds: float, now: float) -> None:
        rate = growth / seconds
        if name in ("link_downed", "carrier_changes"):
            blinks = growth if name == "link_downed" else growth / 2
            unseen = [now] * int(blinks) if not any(now - when <= SAME_BLINK_SECONDS + seconds for when in port.blinks) else []
            if unseen:
                port.blinks.extend(unseen)
                self._book.note(port, None, now, f"{name} grew by {growth:.0f}")
                self._book.flaps(port, now)
            return
        known = ERROR_RATES.get(name)
        if known is None and "uncorrect" in name.partition("fec")[2]:
            # Drivers give it names of their own: `rx_fec_uncorrectable_blocks`, `fec_uncorrectable_cw_lane_0`.
            known = ERROR_RATES["fec_uncorrectable_blocks"]
        if known is not None:
            limit, words = known
            port.bad[name] = port.bad.get(name, 0) + 1 if rate > limit else 0
            if port.bad[name] >= 2:
                text = f"{port.nic} port {port.port} of {port.node} has {rate:.1f} {words} a second: {name}"
                self._book.note(port, None, now, text)
                self._book.accuse(port, "link.errors", now, text, name, lasts=900.0)
            return
        if "tx" in name and "pause" in name and "duration" not in name and "transition" not in name:
            port.bad[name] = port.bad.get(name, 0) + 1 if rate > PAUSES_PER_SECOND else 0
            if port.bad[name] >= 2:
                text = f"{port.nic} of {port.node} sends {rate:.0f} pause frames a second: it or its host cannot take more"
                self._book.note(port, None, now, text)
                self._book.accuse(port, "nic.congestion", now, text, "sends_pauses", lasts=900.0)
