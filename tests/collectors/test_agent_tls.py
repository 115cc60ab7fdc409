"""The agent's page over TLS, by the real agent: what it shows, how it is renewed, and who cannot hold it up."""

import contextlib
import http.client
import json
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from collector_site import Site
from tls_files import Caller, authority, serial_of, signed

from outrider.tls import server_context

pytestmark = pytest.mark.real


@pytest.fixture
def site(make_site: Callable[..., Site], tmp_path: Path) -> Site:
    """Its page has the pair `page`, of the authority `ours`."""
    cert, key = signed(tmp_path, authority(tmp_path, "ours"), "page", days=90)
    site = make_site(1, f'metrics_tls_cert = "{cert}"\nmetrics_tls_key = "{key}"')
    site.start()
    site.witnesses[0].wait(lambda w: w.beats)
    return site


def scraped(site: Site, ca: Path) -> tuple[str, dict[str, float]]:
    """The shown certificate's number, and what the page says of TLS."""
    caller = Caller(site.metrics_port, ca)
    status, text = caller.get("/metrics")
    caller.close()
    assert status == 200 and 'outrider_build_info{component="agent"' in text
    words = [line.rpartition(" ") for line in text.splitlines() if line.startswith("outrider_tls")]
    return caller.serial, {name: float(value) for name, _, value in words}


def test_the_page_speaks_tls_and_follows_its_files(site: Site, tmp_path: Path) -> None:
    ca, cert, key = (tmp_path / name for name in ("ours.pem", "page.pem", "page.key"))
    first, (next_cert, next_key) = serial_of(cert), signed(tmp_path, ca, "next", days=30)
    failed, ends = (
        'outrider_tls_reload_failures_total{part="certificate"}',
        'outrider_tls_not_after_timestamp_seconds{listener="agent"}',
    )
    serial, told = scraped(site, ca)
    assert serial == first
    assert (told[ends], told[failed]) == (server_context(str(cert), str(key)).life.not_after, 0)
    os.replace(shutil.copy(next_cert, tmp_path / "half"), cert)
    assert scraped(site, ca)[0] == first
    assert scraped(site, ca)[0] == first
    os.replace(next_key, key)
    assert scraped(site, ca)[0] == serial_of(next_cert)
    said = [json.loads(line) for line in (site.folder / "agent.log").read_text().splitlines() if "tls_" in line]
    assert [line["event"] for line in said] == ["tls_files_refused", "tls_files_read_anew"]
    assert str(cert) in said[0]["error"] and "KEY_VALUES_MISMATCH" in said[0]["error"]


def test_who_says_no_hello_or_speaks_clear_text_holds_up_nobody(site: Site, tmp_path: Path) -> None:
    with contextlib.ExitStack() as silent:
        for _ in range(6):  # two are left for those who speak
            silent.enter_context(socket.create_connection(("127.0.0.1", site.metrics_port), 10))
        plain = http.client.HTTPConnection("127.0.0.1", site.metrics_port, timeout=10)
        with pytest.raises((OSError, http.client.HTTPException)):
            plain.request("GET", "/metrics")
            plain.getresponse()
        plain.close()
        assert scraped(site, tmp_path / "ours.pem")[1]


def test_a_certificate_that_does_not_serve_is_one_line_and_status_2(make_site: Callable[..., Site], tmp_path: Path) -> None:
    cert, key = signed(tmp_path, authority(tmp_path, "ours"))
    key.chmod(0o644)
    site = make_site(1, f'metrics_tls_cert = "{cert}"\nmetrics_tls_key = "{key}"')
    assert site.start().wait(20) == 2
    assert f"{key}: is open to everybody" in (site.folder / "agent.log").read_text()
