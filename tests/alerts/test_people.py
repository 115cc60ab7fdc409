"""What people see and do: page, redaction, notices, outbox, test, export, the would-have report, schema and receiver example."""

import importlib.util
import json
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from alerts_doubles import SECRET, Leader, body, row
from click.testing import CliRunner
from test_alertmanager import picture, write

from alerts import commands
from alerts.bodies import read_message, schema_text
from alerts.delivery import Attempt
from alerts.gone import GoneTargets
from alerts.notify import NotifySender
from alerts.people import print_attempts, print_gone, print_rows
from alerts.redact import Redactor
from alerts.report import print_report, read_report
from alerts.story import alert_name, tell
from alerts.webhooks import signed_headers
from detectors.witness.ledger import make_ledger
from outrider.catalogue import FAULTS
from outrider.config.alerts import AlertsConfig, Redaction
from outrider.config.ledger import LedgerSection
from outrider.config.targets import NotifyTarget
from outrider.errors import InputError

ROOT = Path(__file__).parents[2]
REFUSED = {
    "event": "refused",
    "action": "restart",
    "target": {"job": "llm-7"},
    "refused": "mode advise: a person decides",
    "wall": "w",
}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("login password=hunter2 ok", "login password=[redacted] ok"),
        ('{"api_key": "a b", "db-password":\'c\'}', '{"api_key": [redacted], "db-password":[redacted]}'),
        (r'{"said": "{\"token\": \"abc\"}"}', r'{"said": "{\"token\": [redacted]'),
        ('"secret": "a\\"b", x', '"secret": [redacted], x'),
        ("train.py --hf-token hf_abc --passwords 3", "train.py --hf-token [redacted] --passwords 3"),
        ("--no-token --lr 3", "--no-token --lr 3"),
        ("export HF_TOKEN=hf_abcdef", "export HF_TOKEN=[redacted]"),
        ("Authorization: Bearer abcdefgh12345", "Authorization: Bearer [redacted]"),
        ("https://user:pw@host/x", "https://[redacted]@host/x"),
        ("AKIAABCDEFGHIJKLMNOP", "[redacted]"),
        ("NVRM: Xid (PCI:0000:3b:00): 79, off the bus", "NVRM: Xid (PCI:0000:3b:00): 79, off the bus"),
        ("host n2.corp.example.com", "host [host]"),
    ],
)  # fmt: skip
def test_secrets_leave_no_text_and_what_matters_stays(text: str, shown: str) -> None:
    redactor = Redactor((Redaction(pattern=r"\S+\.corp\.example\.com", to="[host]"),))
    assert redactor.text(text) == shown
    assert redactor.within({"a": [text]}) == {"a": [shown]}


def test_body_is_redacted_in_its_texts_and_nowhere_else() -> None:
    redactor = Redactor((Redaction(pattern="n2", to="[node]"),))
    plain = body("test", node="n2", explanation="fine")
    assert redactor.body(plain) == plain
    data = json.loads(redactor.body(body("test", node="n2", explanation="n2: token=abc")))["data"]
    assert data == {"node": "n2", "explanation": "[node]: token=[redacted]"}
    assert redactor.body("no json") == "no json"


def test_a_line_of_ten_megabytes_is_cut() -> None:
    assert len(Redactor().text("x" * 10_000_000)) < 5000


@pytest.mark.parametrize("piece", ["a-", "a.", "token ", "token=\"", "bearer ", "a://", "--token-", "AKIA", "-secret:'\\"])
def test_no_text_that_others_write_holds_the_redactor_up(piece: str) -> None:
    """Ten times the text may cost some twenty times the work, never a hundred."""
    redactor = Redactor()

    def cost(size: int) -> float:
        text = (piece * size)[:size]
        began = time.process_time()
        for _ in range(2000 // size * 40):
            redactor.text(text)
        return (time.process_time() - began) / (2000 // size * 40)

    assert min(cost(2000) for _ in range(3)) < 40 * min(cost(100) for _ in range(3)) + 1e-3


HOSTILE = "500: [/red] [bold]\x1b[2J\r\nboom"


def test_what_the_other_side_said_is_shown_as_text_whatever_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    attempt = Attempt(outcome="refused", reason=HOSTILE, reason_code="refused")
    held = {"wall": "2026-01-01T00:00:00", "fault": "f", "target": {"job": HOSTILE}, "subject": {}, "action": "restart",
            "held_back_by": HOSTILE, "ended": "open"}  # fmt: skip
    for show in (
        lambda: print_rows([msgspec.structs.replace(row("r", "test", target=HOSTILE), error=HOSTILE)], False),
        lambda: print_gone([{"target": HOSTILE, "since": "now", "reason": HOSTILE}]),
        lambda: print_attempts([(HOSTILE, attempt)]),
        lambda: print_report({"would_have": [held], "counts": {}}),
    ):
        show()
        shown = capsys.readouterr().out
        assert "[/red]" in "".join(shown.split())
        assert "\x1b" not in shown


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_every_class_has_a_page_with_culprit_and_what_is_left_to_do(fault: str) -> None:
    entry = FAULTS[fault]
    told = tell(picture(fault=fault, repair=entry.repair), AlertsConfig(), "site", Redactor())
    assert fault in told.title
    assert "Left to do: " in told.body
    assert "{" not in told.body
    assert told.labels["alertname"] == alert_name(fault)
    assert told.links["Runbook"].endswith(fault)


def test_page_says_what_waits_for_a_person_and_what_was_refused() -> None:
    told = tell(picture(history=[REFUSED]), AlertsConfig(owners={"llm-*": "team-llm"}), "site", Redactor())
    assert "not done: restarted llm-7 (mode advise: a person decides)" in told.body
    assert "outrider approve i1" in told.body
    assert told.owner == "team-llm"


def test_page_warns_of_repeat_offenders_and_of_jobs_that_loop() -> None:
    line = {"event": "action", "action": "quarantine", "target": {"node": "n2"}, "reason": "silent; taken out 3 times of late"}
    extra = {"crash_loop": {"job": "llm-7", "failures": 5}, "approval": "nobody answered: refuse"}
    told = tell(picture(extra=extra, history=[line]), AlertsConfig(), "site", Redactor()).body
    assert "n2 was taken out 3 times" in told
    assert "llm-7 failed 5 times" in told
    assert "nobody answered" in told


def test_page_says_why_an_action_failed_and_how_it_is_tried_again() -> None:
    line = {"event": "action", "action": "restart", "target": {"job": "llm-7"}, "decision_id": "d1"}
    dead = {"id": "d1.slurm", "decision_id": "d1", "state": "dead", "error": "/ranks/llm-7.ranks.json is damaged: put a copy back"}
    told = tell(picture(history=[line], actions=[dead]), AlertsConfig(), "site", Redactor()).body
    assert "failed: /ranks/llm-7.ranks.json is damaged: put a copy back (`outrider outbox retry d1.slurm` tries it again)" in told


class FakeNotifier:
    """Stands for apprise: keeps what was said; addresses must begin with `good`."""

    def __init__(self) -> None:
        self.said: list[dict[str, str]] = []
        self.answer = True

    def add(self, servers: str) -> bool:
        return servers.startswith("good")

    async def async_notify(self, **said: str) -> bool:
        self.said.append(said)
        return self.answer


@pytest.fixture
def urls(tmp_path: Path) -> Path:
    path = tmp_path / "urls"
    path.write_text("# people\ngood://pager/key\n")
    path.chmod(0o600)
    return path


async def test_owner_hears_of_the_jobs_that_are_theirs_and_of_no_other(leader: Leader, urls: Path) -> None:
    await write(leader, picture("i1", subject={"job": "llm-7"}), picture("i2", subject={"job": "vision"}))
    fake = FakeNotifier()
    owner = NotifySender(
        NotifyTarget(name="owner", url_file=str(urls), jobs=("llm*",)), AlertsConfig(), leader.ledger, "site", make=lambda: fake
    )
    for incident in ("i1", "i2"):
        assert (await owner.send(row("r", "incident.confirmed", incident=incident), 0.0)).outcome == "accepted"
    (said,) = fake.said
    assert "llm-7" in said["title"]
    assert said["notify_type"] == "failure"
    fake.answer = False
    assert (await owner.send(row("r", "incident.confirmed", incident="i1"), 0.0)).outcome == "retry"


async def test_address_that_apprise_does_not_know_is_named_by_line_and_not_shown(leader: Leader, urls: Path) -> None:
    urls.write_text("bad-secret://x\n")
    with pytest.raises(InputError, match=":1") as caught:
        NotifySender(NotifyTarget(name="o", url_file=str(urls)), AlertsConfig(), leader.ledger, "site", make=FakeNotifier)
    assert "bad-secret" not in str(caught.value)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # apprise's own
async def test_real_apprise_posts_to_a_receiver(leader: Leader, urls: Path) -> None:
    pytest.importorskip("apprise")
    await write(leader, picture())
    got: list[Any] = []

    async def take(request: web.Request) -> web.Response:
        got.append(await request.json())
        return web.Response()

    application = web.Application()
    application.router.add_post("/", take)
    async with TestServer(application) as server:
        urls.write_text(f"json://127.0.0.1:{server.port}/\n")
        sender = NotifySender(NotifyTarget(name="o", url_file=str(urls)), AlertsConfig(), leader.ledger, "site")
        attempt = await sender.send(row("r", "incident.confirmed", incident="i1"), 0.0)
    assert attempt.outcome == "accepted"
    assert "node.lost" in got[0]["title"]


async def test_would_have_report_counts_what_was_held_back_and_how_it_ended(leader: Leader) -> None:
    times = {"confirmed": 1.0}
    await write(leader, picture("i1", state="resolved", times=times), line=REFUSED)
    await write(leader, picture("i2", state="resolved", times=times, false_alarm="ann"), line=REFUSED)
    await write(leader, picture("i3", times=times), line=REFUSED)
    report = await read_report(leader.ledger, 100)
    assert report["counts"] == {"confirmed": 3, "false_alarms": 1, "open": 1, "right": 1, "would restart": 3}
    assert {line["incident"] for line in report["would_have"]} == {"i1", "i2", "i3"}
    would = read_message(json.dumps(report["would_have"][0]["would_send"]))
    assert (would.type, would.data.dry_run, would.data.job) == ("job.restart.requested", True, "llm-7")


async def test_would_have_report_counts_an_action_that_was_held_back_again_once(leader: Leader) -> None:
    again = REFUSED | {"refused": "mode observe: recorded only"}
    other = REFUSED | {"action": "quarantine", "target": {"node": "n2"}}
    for line in (REFUSED, other, again):
        await write(leader, picture("i1", times={"confirmed": 1.0}), line=line)
    report = await read_report(leader.ledger, 100)
    assert [(line["action"], line["held_back_by"]) for line in report["would_have"]] == [
        ("restart", REFUSED["refused"]), ("quarantine", REFUSED["refused"]),
    ]  # fmt: skip
    assert report["counts"] == {"confirmed": 1, "open": 1, "would quarantine": 1, "would restart": 1}


@pytest.fixture
def site(tmp_path: Path, ledger_section: LedgerSection, secret_file: str) -> Path:
    path = tmp_path / "site.toml"
    path.write_text(
        f'[ledger]\npath = "{ledger_section.path}"\n[[alerts.targets]]\nname = "t1"\nurl = "http://127.0.0.1:9/"\n'
        f'secret_files = ["{secret_file}"]\n'
    )
    return path


def call(command: Any, *arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(command, list(arguments), standalone_mode=False, catch_exceptions=False)
    return result.return_value, result.output


def prepare(section: LedgerSection, incident: str = "i1") -> None:
    """A ledger with one dead letter, made without a running loop: the commands start their own."""
    import asyncio

    async def make() -> None:
        ledger = make_ledger(section)
        await ledger.open()
        leader = Leader(ledger)
        await leader.put(row("a", incident=incident), row("b", incident=incident))
        await ledger.mark_dead("a", "422: no")
        await write(leader, picture(incident), line={"event": "confirmed", "text": "token=abc"})
        await ledger.close()

    asyncio.run(make())


def test_dead_letters_are_listed_and_sent_again(site: Path, ledger_section: LedgerSection) -> None:
    prepare(ledger_section)
    status, output = call(commands.outbox, "--config", str(site), "--json", "--state", "dead")
    assert status == 1
    assert [json.loads(line)["id"] for line in output.splitlines()] == ["a"]
    assert call(commands.outbox, "--config", str(site))[0] == 1
    assert call(commands.outbox, "--config", str(site), "retry", "a")[0] == 0
    assert call(commands.outbox, "--config", str(site), "retry", "a")[0] == 1
    assert call(commands.outbox, "--config", str(site), "--json", "--state", "dead") == (0, "")


def test_rows_of_an_incident_are_found_by_the_beginning_of_its_name(site: Path, ledger_section: LedgerSection) -> None:
    """Lists show eight letters of a name; "empty" would be untrue of what was not found, or not asked for."""
    prepare(ledger_section, incident="i1a2b3c4d5")
    status, output = call(commands.outbox, "--config", str(site), "--json", "--incident", "i1a2")
    assert (status, {json.loads(line)["id"] for line in output.splitlines()}) == (1, {"a", "b"})
    with pytest.raises(InputError, match="begins with 'zz'"):
        call(commands.outbox, "--config", str(site), "--incident", "zz")
    assert call(commands.outbox, "--config", str(site), "--state", "sent") == (0, "No such row in the outbox.\n")


def test_test_says_what_each_target_answered(site: Path, ledger_section: LedgerSection) -> None:
    status, output = call(commands.test_targets, "--config", str(site), "--json")
    assert status == 1
    assert json.loads(output)["outcome"] == "retry"
    with pytest.raises(InputError, match="no target is called 'x'"):
        call(commands.test_targets, "x", "--config", str(site))


def test_incident_is_exported_whole_and_redacted(site: Path, ledger_section: LedgerSection, tmp_path: Path) -> None:
    prepare(ledger_section)
    out = tmp_path / "i1.json"
    call(commands.export, "i1", "--config", str(site), "--out", str(out))
    whole = json.loads(out.read_text())
    assert {row["id"] for row in whole["deliveries"]} == {"a", "b"}
    assert whole["history"][0]["text"] == "token=[redacted]"
    assert "node.lost" in whole["page"]
    with pytest.raises(InputError, match="no incident"):
        call(commands.export, "zz", "--config", str(site))


def test_target_that_is_gone_is_shown_and_enabled_by_command(site: Path, ledger_section: LedgerSection) -> None:
    import asyncio

    async def gone() -> None:
        ledger = make_ledger(ledger_section)
        await ledger.open()
        await GoneTargets(ledger, {}).note("t1", "410: moved")
        await ledger.close()

    prepare(ledger_section)
    assert call(commands.outbox, "--config", str(site), "gone")[0] == 0
    asyncio.run(gone())
    status, output = call(commands.outbox, "--config", str(site), "--state", "sent")
    assert (status, "t1 is gone since" in output, "enable t1" in " ".join(output.split())) == (1, True, True)
    status, output = call(commands.outbox, "--config", str(site), "gone", "--json")
    assert (status, json.loads(output)["reason"]) == (1, "410: moved")
    assert call(commands.outbox, "--config", str(site), "enable", "t2")[0] == 1
    assert call(commands.outbox, "--config", str(site), "enable", "t1", "--reason", "back")[0] == 0
    assert call(commands.outbox, "--config", str(site), "gone")[0] == 0


def test_published_schema_is_that_of_the_code() -> None:
    assert (ROOT / "docs" / "webhooks.schema.json").read_text() == schema_text(), "make it anew: outrider outbox schema"


def test_body_that_the_leader_writes_fits_the_schema() -> None:
    from detectors.core.types import Action
    from detectors.witness.translate import outbox_row

    target = {
        "job": "j1",
        "attempt": 1,
        "replace": [{"slot": 1, "from": "n2", "to": None}],
        "resume": {"step": 7, "manifest": "m", "rule": "newest"},
    }
    action = Action(t=1.0, decision_id="d", incident="i1", action="restart", target=target, fence=3, deadline_seconds=60.0)
    message = read_message(outbox_row(action, picture(), 0.0).body)
    assert (message.type, message.data.fence, message.data.replace[0].from_, message.data.replace[0].to) == (
        "job.restart.requested",
        3,
        "n2",
        None,
    )


async def test_receiver_example_acts_once_and_drops_what_is_old() -> None:
    spec = importlib.util.spec_from_file_location("webhook_receiver", ROOT / "deploy" / "examples" / "webhook_receiver.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    done: list[str] = []

    async def act(kind: str, data: dict[str, Any]) -> None:
        done.append(kind)

    async with TestClient(TestServer(module.make_receiver(SECRET, act))) as client:

        async def send(name: str, secret: str = SECRET, **data: Any) -> tuple[int, str]:
            text = body("job.restart.requested", job="j1", **({"fence": 5, "dry_run": False} | data))
            answer = await client.post("/webhooks", data=text, headers=signed_headers((secret,), name, text, time.time()))
            return answer.status, (await answer.json())["status"]

        assert await send("m1") == (200, "done")
        assert await send("m1") == (200, "repeated")
        assert await send("m2", fence=4) == (200, "old fence")
        assert await send("m3", dry_run=True) == (200, "done")
        assert (await send("m4", secret="eHh4" * 8))[0] == 401
    assert done == ["job.restart.requested"]
