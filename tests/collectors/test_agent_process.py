"""The agent as a real process, against fake witnesses and ranks."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable

import pytest
from collector_site import Site

from collectors.agent.spool import read_segment
from collectors.emulated.witness import Caller
from outrider.config.security import write_secret
from outrider.sdk import area, cells, page

pytestmark = pytest.mark.real

HELLO = {"hello": "rank", "job": "j1", "attempt": 1, "slot": 0, "rank": 0, "world": 2, "pid": 1, "copy_bytes": 10_000}


def test_heartbeats_reach_every_witness_and_go_on(make_site: Callable[..., Site]) -> None:
    site = make_site(3)
    site.start()
    for witness in site.witnesses:
        witness.wait(lambda w: len(w.beats) >= 5)
        beats = witness.beats[:5]
        assert [beat.seq for beat in beats] == [1, 2, 3, 4, 5]
        assert {beat.node for beat in beats} == {"n1"}
        assert len({(beat.boot, beat.start) for beat in beats}) == 1


def test_a_ranks_page_becomes_steps_and_phases(make_site: Callable[..., Site]) -> None:
    site = make_site()
    site.start()
    rank = Caller(site.socket)
    answer = rank.ask(HELLO)
    assert answer["ok"] and answer["node"] == "n1"
    assert area.CopyArea.open(answer["copy"]).room == 10_000
    writer = page.Writer(page.open_page(answer["progress"]))
    now = time.monotonic_ns()
    writer.tell_phase("train", now)
    writer.end(7, now - 2_000_000_000, now, (2.5, *[float("nan")] * 6))
    step = site.witnesses[0].first("step")
    assert (step.value, step.node, step.job, step.rank) == (7, "n1", "j1", 0)
    assert step.data["step_s"] == pytest.approx(2.0) and step.data["loss"] == 2.5 and step.data["attempt"] == 1
    assert "grad_norm" not in step.data and step.data["age_s"] < 1.0
    assert site.witnesses[0].first("phase").value == "train"
    rank.close()


def test_an_event_of_a_rank_is_sent_on_with_its_place_and_a_forged_one_is_not(make_site: Callable[..., Site]) -> None:
    site = make_site()
    site.start()
    rank = Caller(site.socket)
    rank.ask(HELLO)
    error = rank.ask({"event": {"kind": "xid", "value": 79}})
    assert not error["ok"] and "xid" in error["error"]
    rank.say({"event": {"kind": "snapshot", "value": 4, "data": {"state": "committed", "attempt": 99}}})
    heard = site.witnesses[0].first("snapshot")
    assert (heard.job, heard.rank, heard.source, heard.data["attempt"]) == ("j1", 0, "sdk", 1)
    assert all(s.kind != "xid" for s in site.witnesses[0].signals)
    rank.close()


def test_a_launchers_words_become_signals_at_once_and_once(make_site: Callable[..., Site]) -> None:
    site = make_site()
    site.start()
    launcher = Caller(site.socket)
    assert launcher.ask({"hello": "launcher", "pid": os.getpid()}) == {"ok": True, "node": "n1"}
    launcher.say({"job": {"job": "j1", "attempt": 2, "slots": [["n1", 0]], "groups": {"dp": [[0]]}, "limits": {}}})
    for _ in range(2):
        launcher.say({"exit": {"job": "j1", "attempt": 2, "slot": 0, "rank": 0, "pid": 9, "code": -9, "reason": None}})
    launcher.say({"exit": {"job": "j1", "attempt": 2, "slot": 1, "rank": 1, "pid": 10, "code": 1, "reason": "oom"}})
    witness = site.witnesses[0]
    assert witness.first("job").data["slots"] == [["n1", 0]]
    assert witness.first("process_exit", rank=1).data["reason"] == "oom"
    exits = [s for s in witness.signals if s.kind == "process_exit" and s.rank == 0]
    assert [s.value for s in exits] == [-9]
    launcher.close()


def test_the_end_of_a_rank_without_a_launcher_is_seen_by_the_agent(make_site: Callable[..., Site]) -> None:
    site = make_site()
    site.start()
    Caller(site.socket).close()
    program = (
        "import json, os, socket, signal, sys\n"
        "s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n"
        f"s.sendall(json.dumps({HELLO!r}).encode() + b'\\n'); s.recv(1000)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert subprocess.run([sys.executable, "-c", program, str(site.socket)], check=False).returncode == -9
    seen = site.witnesses[0].first("process_exit")
    assert seen.rank == 0 and seen.data["seen_by"] == "kernel" and seen.data["farewell"] == "none"
    assert seen.value in (-9, None)  # older kernels do not tell the code to a process that is not the parent


def test_orders_reach_the_ranks_once_and_old_fences_do_not(make_site: Callable[..., Site]) -> None:
    site = make_site(2)
    site.start()
    rank = Caller(site.socket)
    side = page.SideWriter(page.open_page(rank.ask(HELLO)["progress"]))
    for witness in site.witnesses:
        witness.order(number=1, id="a", order="publish", job="j1", ranks=(0,), fence=5, incident="i1", deadline_s=9.0)

    def command(known: int) -> cells.CommandCell:
        until = time.monotonic() + 20
        while time.monotonic() < until:
            if (cell := side.command(known)) is not None:
                return cell
            time.sleep(0.01)
        raise AssertionError("no command came")

    first = command(0)
    assert (first.number, first.command, first.fence, first.incident, first.ranks) == (1, "publish", 5, "i1", (0,))
    assert 0 < first.deadline_ns - time.monotonic_ns() <= 9_000_000_000
    site.witnesses[0].order(number=2, id="old", order="stop", job="j1", fence=4)
    site.witnesses[0].order(number=3, id="b", order="drop", job="j1", fence=5)
    second = command(1)
    assert (second.number, second.command) == (2, "drop")
    rank.close()


def test_a_rank_of_a_stopped_attempt_that_comes_late_is_told_to_leave(make_site: Callable[..., Site]) -> None:
    site = make_site()
    site.start()
    site.witnesses[0].wait(lambda w: w.beats)
    site.witnesses[0].order(number=1, id="s", order="stop", job="j1", attempt=1, fence=7, incident="i")
    site.witnesses[0].order(number=2, id="p", order="probe", node="n1", address="127.0.0.1", port=site.udp_port, closed_port=1)
    site.witnesses[0].first("probe")  # orders are obeyed in turn, so the one before is known
    late, fresh = Caller(site.socket), Caller(site.socket)
    old = page.SideWriter(page.open_page(late.ask(HELLO)["progress"])).command(0)
    new = page.SideWriter(page.open_page(fresh.ask({**HELLO, "attempt": 2, "slot": 1})["progress"])).command(0)
    assert old is not None and (old.command, old.fence) == ("exit", 7)
    assert new is None
    late.close()
    fresh.close()


def test_a_probe_tells_a_living_agent_from_a_stopped_and_a_dead_one(make_site: Callable[..., Site]) -> None:
    site = make_site()
    process = site.start()
    witness = site.witnesses[0]
    witness.wait(lambda w: w.beats)
    with socket_at(0) as silent:  # a bound port on which nobody reads: a stopped agent
        port = silent.getsockname()[1]
        target = {"node": "n2", "address": "127.0.0.1", "closed_port": 1}
        witness.order(number=1, id="p1", order="probe", **target, port=site.udp_port)
        witness.order(number=2, id="p2", order="probe", **target, port=port)
        witness.order(number=3, id="p3", order="probe", **target, port=1)
        witness.order(number=4, id="p4", order="probe", node="n2", address="240.0.0.1", port=1, closed_port=2)
        witness.wait(lambda w: sum(s.kind == "probe" for s in w.signals) == 4)
    answers = {s.data["order"]: s.value for s in witness.signals if s.kind == "probe"}
    assert answers == {"p1": "reply", "p2": "mute", "p3": "refused", "p4": "none"}
    assert process.poll() is None


def test_a_restarted_agent_keeps_slots_and_counts_on(make_site: Callable[..., Site]) -> None:
    site = make_site()
    first = site.start()
    rank = Caller(site.socket)
    answer = rank.ask(HELLO)
    writer = page.Writer(page.open_page(answer["progress"]))
    site.witnesses[0].wait(lambda w: w.beats)
    first.send_signal(signal.SIGKILL)
    first.wait(10)
    rank.close()
    before = site.witnesses[0].beats[-1]
    site.start()
    site.witnesses[0].wait(lambda w: w.beats[-1].start > before.start)
    now = time.monotonic_ns()
    writer.end(3, now - 1, now, (1.0, *[float("nan")] * 6))
    assert site.witnesses[0].first("step").value == 3
    again = Caller(site.socket)
    assert again.ask(HELLO) == answer
    again.close()


def test_signals_wait_on_disk_while_no_witness_answers(make_site: Callable[..., Site]) -> None:
    site = make_site()
    witness = site.witnesses[0]
    witness.refuse = 503
    first = site.start()
    launcher = Caller(site.socket)
    launcher.ask({"hello": "launcher", "pid": 1})
    for number in range(20):
        launcher.say({"exit": {"job": "j1", "attempt": 1, "slot": 0, "rank": number, "pid": number, "code": 1}})
    until = time.monotonic() + 20
    segments = site.folder / "run/n1/state/spool"
    while sum(len(read_segment(path)) for path in segments.glob("*.signals")) < 20 and time.monotonic() < until:
        time.sleep(0.02)
    launcher.close()
    first.send_signal(signal.SIGKILL)
    first.wait(10)
    witness.refuse = 0
    site.start()
    witness.wait(lambda w: len(w.signals) >= 20)
    assert [s.rank for s in witness.signals[:20]] == list(range(20))
    assert len({s.id for s in witness.signals}) == len(witness.signals)


def test_sigterm_ends_it_cleanly(make_site: Callable[..., Site]) -> None:
    site = make_site()
    process = site.start()
    site.witnesses[0].wait(lambda w: w.beats)
    began = time.monotonic()
    process.terminate()
    assert process.wait(10) == 0
    assert time.monotonic() - began < 3.0
    assert not site.socket.exists()


def test_the_page_of_metrics_is_served(make_site: Callable[..., Site]) -> None:
    site = make_site()
    site.start()
    site.witnesses[0].wait(lambda w: w.beats)
    text = urllib.request.urlopen(f"http://127.0.0.1:{site.metrics_port}/metrics").read().decode()
    assert 'outrider_build_info{component="agent"' in text
    assert 'outrider_agent_heartbeats_total{node="n1"}' in text
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"http://127.0.0.1:{site.metrics_port}/")


def test_as_a_service_it_runs_the_node_of_this_hosts_name(make_site: Callable[..., Site]) -> None:
    site = make_site()
    site.config.write_text(site.config.read_text().replace('node = "n1"', f'node = "{socket.gethostname()}"'))
    code = f"from collectors.agent.command import serve; serve({str(site.config)!r})"
    site.processes.append(subprocess.Popen([sys.executable, "-c", code]))
    site.witnesses[0].wait(lambda w: w.beats)
    assert site.witnesses[0].beats[0].node == socket.gethostname()
    site.processes[0].terminate()
    assert site.processes[0].wait(10) == 0


def test_as_a_service_on_a_host_that_is_no_node_it_waits(make_site: Callable[..., Site]) -> None:
    site = make_site()
    code = f"from collectors.agent.command import serve; print(1, flush=True); serve({str(site.config)!r})"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    site.processes.append(process)
    assert process.stdout is not None
    process.stdout.readline()
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1.5)
    process.terminate()
    process.wait(10)
    process.stdout.close()


def test_off_loopback_the_page_needs_a_viewers_token(make_site: Callable[..., Site]) -> None:
    site = make_site(1, 'metrics_address = "0.0.0.0"')
    write_secret(site.folder / "viewer")
    site.config.write_text(site.config.read_text().replace("[security]", f'[security]\nviewer_token_file = "{site.folder}/viewer"'))
    site.start()
    site.witnesses[0].wait(lambda w: w.beats)
    url = f"http://127.0.0.1:{site.metrics_port}/metrics"
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(url)
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {(site.folder / 'viewer').read_text().strip()}"})
    assert b"outrider_build_info" in urllib.request.urlopen(request).read()


@pytest.mark.parametrize(
    ("extra", "node", "told"),
    [
        ("", "n9", "no node 'n9'"),
        ('metrics_address = "0.0.0.0"', "n1", "viewer_token_file"),
        ("users = ['nobody-such']", "n1", "no user 'nobody-such'"),
    ],
)
def test_a_wrong_setting_is_one_line_and_status_2(make_site: Callable[..., Site], extra: str, node: str, told: str) -> None:
    site = make_site(1, extra)
    command = [sys.executable, "-m", "outrider.cli.shell", "agent", "--config", str(site.config), "--node", node]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 2
    assert told in done.stderr and len(done.stderr.splitlines()) == 1


def socket_at(port: int):
    channel = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    channel.bind(("127.0.0.1", port))
    return channel
