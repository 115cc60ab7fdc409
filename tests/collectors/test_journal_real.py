"""The journal as source of kernel messages, with a real systemd-journald in a namespace of its own and a real journalctl.

journald reads /dev/kmsg itself. A process can write there only as a user's record (facility 1), of which journald takes the word
before the first colon for the writer's name; the driver's own (facility 0) keep their text. Both are read.
"""

import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from collectors.frame.types import CollectorError, Note, Place, Readings
from collectors.kmsg import Kmsg
from outrider.config.collectors import CollectorsSection
from outrider.signals import Signal

JOURNALD = Path("/lib/systemd/systemd-journald")
START = """
mount --make-rprivate / && mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/journal /run/log/journal/$(cat /etc/machine-id)
exec {journald}
"""

#: The kernel's log is the whole machine's and keeps what earlier runs wrote: the GPUs of this run have a domain of their own.
DOMAIN = f"{(os.getpid() ^ time.monotonic_ns() >> 20) & 0xFFFF:04x}"

pytestmark = pytest.mark.real


class Journal:
    """A journald whose files nobody else sees, and a journalctl that sees them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            ["unshare", "-m", "sh", "-c", START.format(journald=JOURNALD)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.program = folder / "journalctl"
        self.program.write_text(f'#!/bin/sh\nexec nsenter -t {self.process.pid} -m journalctl "$@"\n')
        self.program.chmod(0o755)

    def ready(self) -> bool:
        until = time.monotonic() + 10.0
        while time.monotonic() < until:
            found = subprocess.run([self.program, "-k", "-b", "-n", "1"], capture_output=True, check=False, text=True)
            if found.returncode == 0 and "No entries" not in found.stdout:
                return True
            time.sleep(0.1)
        return False

    def collector(self, *, user_records: bool = True) -> Kmsg:
        section = CollectorsSection(
            kmsg_path=str(self.folder / "none"), journalctl=str(self.program), kmsg_user_records=user_records
        )
        made = Kmsg(Place(node="n1", boot="b", state_dir=str(self.folder), section=section), Note())
        assert made.supported() is None
        return made

    def close(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(5)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    if not JOURNALD.exists() or shutil.which("journalctl") is None or os.geteuid() != 0 or not os.access("/dev/kmsg", os.W_OK):
        pytest.skip("needs systemd-journald, journalctl, and root")
    if subprocess.run(["unshare", "-m", "true"], check=False).returncode:
        pytest.skip("no right to make a namespace")
    made = Journal(tmp_path)
    try:
        if not made.ready():
            pytest.skip("journald does not run here")
        yield made
    finally:
        made.close()


def pci(bus: int) -> str:
    return f"{DOMAIN}:{bus:02x}:00"


def write(bus: int) -> None:
    with open("/dev/kmsg", "w") as log:
        log.write(f"<3>NVRM: Xid (PCI:{DOMAIN}:{bus:02x}:00): 79, pid=1, name=outrider-test, GPU has fallen off the bus.\n")


def wait_for(collector: Kmsg, bus: int, seconds: float = 10.0) -> list[Signal]:
    """All XIDs heard until that of `bus` comes."""
    heard: list[Signal] = []
    until = time.monotonic() + seconds
    while not any(one.pci == pci(bus) for one in heard):
        assert time.monotonic() < until, f"not heard: {heard}"
        select.select([collector.fileno()], [], [], 0.2)
        outcome = collector.read(time.monotonic())
        assert isinstance(outcome, Readings)
        heard += [one for one in outcome.signals if one.kind == "xid"]
        collector.handed_over()
    return heard


def test_a_real_journal_gives_what_the_kernel_logs_and_goes_on_where_it_was(journal: Journal) -> None:
    """At once while it is followed; after a restart what came meanwhile, and nothing twice."""
    first = journal.collector()
    write(0xE1)
    (xid,) = [one for one in wait_for(first, 0xE1) if one.pci == pci(0xE1)]
    assert xid.value == 79
    first.read(time.monotonic() + 1e6)  # whatever the gate still held
    first.handed_over()
    first.close()
    write(0xE2)
    second = journal.collector()
    heard = wait_for(second, 0xE2)
    assert pci(0xE1) not in {one.pci for one in heard}
    second.close()


def test_a_journal_that_ends_is_an_error_and_not_silence(journal: Journal) -> None:
    collector = journal.collector()
    wait_before = time.monotonic()
    program = journal.folder / "journalctl"
    program.write_text("#!/bin/sh\nexit 1\n")
    collector.close()
    broken = journal.collector()
    select.select([broken.fileno()], [], [], 5)
    with pytest.raises(CollectorError, match="journalctl has ended"):
        broken.read(wait_before)
    broken.close()


def test_what_a_process_wrote_is_not_taken_for_the_kernels_word(journal: Journal) -> None:
    """journald puts both under the kernel's transport; the facility tells them apart."""
    strict = journal.collector(user_records=False)
    write(0xE3)
    until = time.monotonic() + 2.0
    while time.monotonic() < until:
        select.select([strict.fileno()], [], [], 0.2)
        outcome = strict.read(time.monotonic())
        assert isinstance(outcome, Readings)
        assert not any(one.pci == pci(0xE3) for one in outcome.signals)
    strict.close()
