"""`outrider top`: the worst first, nothing cut silently, names cannot steer the terminal, and it lives through a silent witness."""

import http.server
import io
import json
import os
import pty
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from dashboards.top import Course, screen, top

TOKEN = "0123456789abcdef" * 2


def incident(name: str, response: str = "restart", state: str = "confirmed", **more: Any) -> dict[str, Any]:
    return {
        "incident": name, "fault": "node.lost", "response": response, "state": state, "subject": {"node": "n1"},
        "explanation": f"story of {name}", "opened": "2026-01-02T03:04:05Z", **more,
    }  # fmt: skip


def status(**more: Any) -> dict[str, Any]:
    return {
        "site": "s1", "mode": "act", "paused": False, "nodes": 4, "spares": ["n4"],
        "witnesses": {"w1": {"up": True}, "w2": {"up": None}},
        "leader": "w1", "deliverer": True, "maintenance": [], "open": [], "warnings": [], "jobs": {}, **more,
    }  # fmt: skip


def job(step: int | None, name: str = "j1", attempt: int = 1) -> dict[str, Any]:
    return {"job": name, "attempt": attempt, "phase": "train", "step": step, "ranks": 8, "loss": 2.5}


def shown(told: dict[str, Any], jobs: list[dict[str, Any]], course: Course | None = None, width: int = 110, **more: Any) -> str:
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=False).print(screen(told, jobs, course or Course(), **{"height": None, **more}))
    return out.getvalue()


def test_the_worst_stands_first_and_suspicions_last() -> None:
    text = shown(status(open=[incident("aaaa", state="suspected"), incident("bbbb", "page"), incident("cccc", "restart")]), [])
    assert text.index("cccc") < text.index("bbbb") < text.index("aaaa")


def test_the_explanation_stands_on_a_line_of_its_own() -> None:
    head, story = (
        line for line in shown(status(open=[incident("abcd")]), []).splitlines() if "node.lost" in line or "story" in line
    )
    assert "-> restart" in head and "story of abcd" in story


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("height", [None, 40])
def test_a_narrow_terminal_cuts_neither_names_nor_states(width: int, height: int | None) -> None:
    long = incident("5d9ac7b0", subject={"job": "llama-3-70b-pretrain-run-12", "rank": 1023, "node": "gpu-rack17-node04"})
    text = shown(status(open=[long]), [job(12_345, "llama-3-70b-pretrain-run-12")], width=width, height=height)
    for word in ("5d9ac7b0", "01-02 03:04:05", "confirmed", "node.lost -> restart", "rank 1023", "gpu-rack17-node04"):
        assert word in text
    assert text.count("llama-3-70b-pretrain-run-12") == 2
    assert "…" not in text


def test_what_does_not_fit_is_counted() -> None:
    told = status(open=[incident(f"i{number}", explanation="words " * 100) for number in range(100)])
    text = shown(told, [job(1, f"j{number}") for number in range(50)], height=30)
    assert len(text.splitlines()) <= 30
    assert "more: outrider incidents" in text
    assert text.count("more") == 2


def test_pace_is_measured_within_one_attempt_and_unknown_is_said() -> None:
    course = Course()
    assert course.pace("j1") is None
    for second, step, attempt in ((0.0, 90, 1), (10.0, 100, 1)):
        course.see([job(step, attempt=attempt)], second)
    assert course.pace("j1") == 60.0
    course.see([job(80, attempt=2)], 20.0)
    assert course.pace("j1") is None
    assert "?" in shown(status(), [job(None)], course)
    course.see([], 30.0)
    assert course.pace("j1") is None


def test_names_with_markup_and_escape_codes_are_shown_as_they_are() -> None:
    evil = incident("[red]x", explanation="\x1b]0;owned\x07[bold]words[/bold]", subject={"node": "\x1b[2Jn1"})
    text = shown(status(site="[blink]s", open=[evil]), [job(1, "[link=x]j")])
    assert "\x1b" not in text and "\x07" not in text
    for words in ("[red]x", "[bold]words[/bold]", "[blink]s", "[link=x]j"):
        assert words in text


class Witness:
    """A fake of a witness's two routes."""

    def __init__(self) -> None:
        self.told, self.silent, self.asked = status(), False, 0


@pytest.fixture
def witness(tmp_path: Path) -> Iterator[tuple[Witness, str]]:
    fake = Witness()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            fake.asked += 1
            good = self.headers.get("Authorization") == f"Bearer {TOKEN}" and not fake.silent
            if self.path == "/console/api/jobs" and good:
                self.send_error(404)
                return
            body = json.dumps(fake.told).encode()
            self.send_response(200 if good else 503)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    (tmp_path / "viewer").write_text(TOKEN)
    (tmp_path / "viewer").chmod(0o600)
    config = tmp_path / "outrider.toml"
    config.write_text(
        f'[security]\nviewer_token_file = "{tmp_path}/viewer"\n[[witness.members]]\nname = "w1"\naddress = "127.0.0.1"\n'
        f"http_port = {server.server_address[1]}\nheartbeat_port = 9\n"
    )
    yield fake, str(config)
    server.shutdown()
    server.server_close()


def test_one_look_ends_with_one_when_something_serious_is_open(witness: tuple[Witness, str]) -> None:
    fake, config = witness
    fake.told = status(jobs={"j1": {"attempt": 2, "ranks": 8}}, open=[incident("abcd")])
    done = CliRunner().invoke(top, ["--config", config, "--once"], standalone_mode=False)
    assert done.return_value == 1
    assert "node.lost -> restart" in done.output and "node n1" in done.output and "j1" in done.output
    fake.told = status()
    done = CliRunner().invoke(top, ["--config", config, "--json"], standalone_mode=False)
    assert done.return_value == 0
    assert json.loads(done.output)["status"]["site"] == "s1"


@pytest.mark.real
def test_it_looks_again_lives_through_silence_and_leaves_with_q(witness: tuple[Witness, str]) -> None:
    fake, config = witness
    master, slave = pty.openpty()
    arguments = ["--config", config, "--interval", "0.2"]
    code = f"import sys; from dashboards.top import top; sys.exit(top.main({arguments!r}, standalone_mode=False))"
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "40"},
    )
    os.close(slave)
    seen = b""

    def until(words: bytes) -> None:
        nonlocal seen
        end = time.monotonic() + 60
        while words not in seen:
            assert time.monotonic() < end, seen
            if select.select([master], [], [], 0.2)[0]:
                seen += os.read(master, 65536)

    try:
        until(b"no open incident")
        fake.told = status(open=[incident("abcd")])
        until(b"story of abcd")
        fake.silent = True
        until(b"no witness answers")
        fake.silent, fake.told, seen = False, status(site="back"), b""
        until(b"back")
        os.write(master, b"q")
        assert process.wait(30) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(10)
        os.close(master)
