"""Every spelling in which dmesg, journalctl and syslog show the kernel's log is known, and the same fault is found in each."""

import pytest
from click.testing import CliRunner

from detectors.inspect.command import inspect

MESSAGE = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus."
OTHER = "usb 1-1: new high-speed USB device number 2, loss of step"
#: Spelling -> what stands in front of each message.
SPELLINGS = {
    "dmesg": "[   12.345678] ",
    "dmesg -r": "<3>[   12.345678] ",
    "dmesg -x": "kern  :err   : [   12.345678] ",
    "dmesg -T": "[Mon Nov 30 02:00:00 2026] ",
    "dmesg -xT": "kern  :err   : [Mon Nov 30 02:00:00 2026] ",
    "dmesg -H": "[  +0.000012] ",
    "dmesg -xH": "kern  :err   : [Nov30 02:00] ",
    "dmesg -d": "[   12.345678 <    0.000012>] ",
    "dmesg -dT": "[Mon Nov 30 02:00:00 2026 <    0.000012>] ",
    "dmesg --time-format delta": "[<    0.000012>] ",
    "dmesg --time-format iso": "2026-11-30T02:00:00,123456+00:00 ",
    "dmesg -x --time-format iso": "kern  :err   : 2026-11-30T02:00:00,123456+00:00 ",
    "dmesg -xt": "kern  :err   : ",
    "journalctl -k": "Nov 30 02:00:00 n1 kernel: ",
    "journalctl -k -o short-iso": "2026-11-30T02:00:00+0000 n1 kernel: ",
    "journalctl -k -o short-iso-precise": "2026-11-30T02:00:00.123456+00:00 n1 kernel: ",
    "journalctl -k -o short-precise": "Nov 30 02:00:00.123456 n1 kernel: ",
    "journalctl -k -o short-full": "Mon 2026-11-30 02:00:00 UTC n1 kernel: ",
    "journalctl -k -o short-monotonic": "[   12.345678] n1 kernel: ",
    "journalctl -k -o short-unix": "1796004000.123456 n1 kernel: ",
    "syslog": "Nov 30 02:00:00 n1 kernel: [   12.345678] ",
    "kmsg": "3,12,12345678,-;",
}
#: Spellings that do not tell the kernel's lines from a program's.
UNTOLD = {name for name in SPELLINGS if name.startswith("dmesg") and "-r" not in name and "-x" not in name}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_fault_is_found_in_every_spelling_and_a_hidden_writer_is_told(spelling: str) -> None:
    text = "".join(f"{SPELLINGS[spelling]}{message}\n" for message in (OTHER, MESSAGE, OTHER))
    done = CliRunner().invoke(inspect, ["-"], input=text, standalone_mode=False)
    assert done.exception is None, done.output
    assert (done.return_value, "gpu.fallen_off_bus" in done.stdout, "(kmsg)" in done.stdout) == (1, True, True)
    assert ("do not say who wrote them" in done.stderr) == (spelling in UNTOLD)


@pytest.mark.parametrize("spelling", [name for name in SPELLINGS if "-x" in name])
def test_what_a_program_wrote_is_not_the_kernels_word(spelling: str) -> None:
    text = f"{SPELLINGS[spelling].replace('kern', 'user')}{MESSAGE}\n" + f"{SPELLINGS[spelling]}{OTHER}\n" * 2
    done = CliRunner().invoke(inspect, ["-"], input=text, standalone_mode=False)
    assert (done.return_value, "Nothing that needs anybody" in done.stdout) == (0, True)


@pytest.mark.parametrize(("text", "weak"), [("step 3 done\n", True), ("[rank0]: iteration 3\n", False)])
def test_a_weak_guess_is_told(text: str, weak: bool) -> None:
    done = CliRunner().invoke(inspect, ["-"], input=text * 3, standalone_mode=False)
    assert ("taken for a training log, by few signs" in done.stderr) == weak
