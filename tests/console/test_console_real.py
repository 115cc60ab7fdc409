"""The console in a real browser: what each role may do, bad names, a witness that dies, an old tab, accessibility.

Pictures of every page, light and dark, on a telephone and in Chinese, are left in `out/screenshots/`.
"""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from console_stage import AGENT, OPERATOR, VIEWER, Stage, fleet_of, picture

from outrider.signals import Signal

pytestmark = pytest.mark.real
pytest.importorskip("selenium", reason="selenium is not installed")
from console_browser import Keys, Person  # noqa: E402  # it imports selenium

AXE = (Path(__file__).parent / "vendor" / "axe.min.js").read_text(encoding="utf-8")
MARKUP = '<img src=x onerror="window.hacked=1"><b>n7</b>'
ONE = picture(1)["incident"]


@pytest.fixture
def operator(chromium: Any, stage: Stage) -> Person:
    """An operator in front of a fleet with something of everything."""
    fill(stage)
    person = Person(chromium, stage.urls[0])
    person.size(1280, 900)
    return person.log_in(OPERATOR)


def fill(stage: Stage) -> None:
    stage.put(picture(1), picture(2), refused="mode advise: a person decides")
    stage.put(picture(3, state="suspected", fault="node.lost", response="watch", votes={"w1": "faulty", "w2": "clear"}))
    stage.put(
        picture(4, state="recovering", fault="nic.down", restarts={"llama": 2}), picture(5, fault="gpu.thermal", response="page")
    )
    stage.put(picture(6, state="resolved"), picture(7, state="refuted"))
    for value in range(60):
        attempt, step = (1, value) if value < 40 else (2, value - 2)
        data = {"attempt": attempt, "loss": 4 * math.exp(-value / 20), "step_s": 1.0, "age_s": (60 - value) * 4.0}
        stage.tell(Signal(t=1.0, kind="step", job="llama", value=step, data=data))
    stage.tell(Signal(t=1.0, kind="snapshot", job="llama", rank=0, value=50, data={"attempt": 2, "state": "committed"}))
    stage.tell(Signal(t=1.0, kind="xid", node="n00001", gpu=1, value=79, text="NVRM: Xid 79 " + MARKUP))
    folder = stage.folder / "reports" / "kill"
    folder.mkdir(parents=True, exist_ok=True)
    stage.audit(*AUDIT)
    figures = {"detect_s": 0.5, "confirm_s": 0.62, "snapshot_s": 0.9, "load_s": 1.8, "first_step_s": 2.4, "lost_steps": 1}
    timeline = [[0.0, "the fault"], [0.5, "job.rank_exit is suspected"], [0.62, "confirmed"], [2.4, "the first step of attempt 2"]]
    fault = {"fault": "kill", "ok": True, **figures, "loss_equal": True, "digest_equal": True, "timeline": timeline}
    (folder / "report.json").write_text(json.dumps({"about": {"seed": 7}, "faults": [fault]}))


#: What lines of the audit look like.
AUDIT = (
    {"who": "council", "what": "action", "action": "restart", "incident": picture(4)["incident"], "why": "mlx5_0 is down for 31 s"},
    {"who": "deliverer", "what": "delivery", "type": "job.restart.requested", "target": "slurm", "incident": picture(4)["incident"],
     "outcome": "accepted", "status": 200, "why": "200: requeued"},
    {"who": "ada", "what": "ack", "incident": picture(2)["incident"], "why": "on my way " + MARKUP},
)  # fmt: skip
#: Address -> what must stand on the page.
PAGES = {
    "fleet": ("#/", "Nodes that are not well"),
    "incidents": ("#/incidents", "A GPU no longer answers"),
    "incident": (f"#/incident/{ONE}", "Waits for an operator's approval of: restart."),
    "jobs": ("#/jobs", "llama"),
    "job": ("#/job/llama", "Snapshots and restarts"),
    "node": ("#/node/n00001", "NVRM: Xid 79"),
    "audit": ("#/audit", "on my way"),
    "drills": ("#/drills", "1 of 1 right"),
    "drill": ("#/drill/kill", "How it was run"),
    "outrider": ("#/outrider", "Signals taken in"),
}


#: The same pages' words in Chinese.
CHINESE = {
    "fleet": "未结事件", "incidents": "找到", "incident": "接下来", "jobs": "llama", "job": "槽位", "node": "最近读数",
    "audit": "做过", "drills": "正确", "drill": "运行方式", "outrider": "收到的信号",
}  # fmt: skip


def violations(browser: Any) -> list[str]:
    """What axe-core finds: WCAG 2.1 A and AA."""
    browser.execute_script(AXE)
    found = browser.execute_async_script(
        "const done = arguments[0]; axe.run({runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa']})"
        ".then((told) => done([told.violations, told.passes.map((one) => one.id)]))"
    )
    found, passed = found
    assert "color-contrast" in passed  # it did look
    return [f"{one['id']}: {node['target']} {node.get('failureSummary', '')}" for one in found for node in one["nodes"]]


def dress(person: Person, theme: str) -> None:
    """Chooses a theme as a person does; the log-in page has no choice, it is as the system is."""
    if person.count("select[aria-label=Theme]"):
        person.find(f"select[aria-label=Theme] option[value={theme}]").click()
    else:
        person.browser.execute_script("document.documentElement.dataset.theme = arguments[0]", theme)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_shows_itself_without_error_and_passes_the_accessibility_rules(operator: Person, theme: str) -> None:
    operator.find("canvas")
    dress(operator, theme)
    found = {}
    for name, (place, text) in PAGES.items():
        operator.go(place).sees(text)
        operator.picture(f"{name}-{theme}")
        found[name] = violations(operator.browser)
    assert {name: list_ for name, list_ in found.items() if list_} == {}
    assert operator.complaints() == []


def test_log_in_page_passes_too_and_a_wrong_token_is_told(chromium: Any, stage: Stage) -> None:
    person = Person(chromium, stage.urls[0]).log_in("00" * 16)
    assert person.sees("This token is not known here.")
    for theme in ("light", "dark"):
        dress(person, theme)
        person.picture(f"log-in-{theme}")
        assert violations(chromium) == []
    assert "00" * 16 not in chromium.current_url


def test_telephone_shows_all_in_one_column(operator: Person) -> None:
    operator.size(390, 844)
    try:
        for name, (place, text) in PAGES.items():
            operator.go(place).sees(text)
            operator.picture(f"{name}-phone")
            wide = operator.browser.execute_script("return document.documentElement.scrollWidth")
            assert wide <= 390, (name, wide)
        assert violations(operator.browser) == []
        operator.find("header button:last-of-type").click()
        operator.find("#token")
        operator.picture("log-in-phone")
    finally:
        operator.size(1280, 900)


def test_operator_approves_acknowledges_dismisses_and_holds_back(operator: Person, stage: Stage) -> None:
    operator.go(f"#/incident/{ONE}").sees("What happens next")
    words = {"Approve": "approve", "Acknowledge": "ack", "False alarm": "false_alarm", "Maintenance": "maintenance"}
    for title, kind in words.items():
        operator.press(kind.replace("_", "-"), f"because {kind}")
        operator.sees(f"sent: {title}")
        (control,) = [one for one in stage.controls() if one.kind == kind]
        assert control.key == ("n00001" if kind == "maintenance" else ONE)
        assert (control.body["who"], control.body["reason"]) == ("ada", f"because {kind}")
    operator.go("#/outrider").sees("Pause all actions")
    operator.press("pause", "an upgrade")
    assert operator.sees("All actions are paused.")
    operator.press("resume", "done")
    operator.sees("Pause all actions")
    assert not [one for one in stage.controls() if one.kind == "pause"]
    operator.press("reset-brake", "the power is back")
    operator.sees("sent: Let go of the brake")
    assert operator.complaints() == []


def test_operator_holds_a_job_and_a_node_and_lets_go_of_both(operator: Person, stage: Stage) -> None:
    stage.quarantine("n00001")
    operator.go("#/node/n00001").sees("Release")
    operator.press("release", "repaired")
    operator.sees("sent: Release")
    operator.press("maintenance", "new firmware")
    operator.sees("End maintenance")
    operator.press("maintenance-off", "done")
    operator.find("#do-maintenance")
    operator.go("#/job/llama").sees("Job llama")
    operator.press("maintenance", "a new data set")
    operator.sees("sent: Maintenance")
    found = {(one.kind, one.key) for one in stage.controls()}
    assert {("release", "n00001"), ("maintenance", "llama")} <= found and ("maintenance", "n00001") not in found
    assert operator.complaints() == []


def test_viewer_sees_everything_and_can_do_nothing(chromium: Any, stage: Stage) -> None:
    fill(stage)
    person = Person(chromium, stage.urls[0]).log_in(VIEWER, at=f"#/incident/{ONE}")
    assert person.sees("To decide, log in with an operator's token.")
    for place in ("#/outrider", "#/node/n00001", "#/job/llama"):
        person.go(place).find("h1")
        assert person.count("[id^=do-]") == 0
    ask = (
        "const [token, path, body, done] = arguments; fetch('/v1/' + path, {method: 'POST', headers:"
        " {Authorization: 'Bearer ' + token}, body: JSON.stringify(body)}).then((answer) => done(answer.status))"
    )
    body = {"incident": ONE, "node": "n00001", "on": True, "seconds": 60, "who": "eve", "reason": "because"}
    for token, status in ((VIEWER, 403), (AGENT, 403), ("00" * 16, 401)):
        for path in ("approve", "ack", "false_alarm", "release", "maintenance", "pause", "reset_brake"):
            assert (path, chromium.execute_async_script(ask, token, path, body)) == (path, status)
    assert stage.controls() == []


def test_an_agents_token_opens_no_page(chromium: Any, stage: Stage) -> None:
    assert Person(chromium, stage.urls[0]).log_in(AGENT).sees("This token is not known here.")


def test_names_with_markup_are_text(operator: Person, stage: Stage) -> None:
    stage.put(
        picture(8, subject={"node": MARKUP, "job": MARKUP}, explanation=MARKUP, votes={MARKUP: "faulty"}, acknowledged=MARKUP)
    )
    stage.tell(Signal(t=1.0, kind="job", job=MARKUP, data={"slots": [["n00001", 0]], "attempt": 1}))
    stage.tell(Signal(t=1.0, kind="phase", job=MARKUP, value="train"))
    for place in ("#/", "#/incidents", f"#/incident/{picture(8)['incident']}", "#/jobs", "#/node/n00001"):
        operator.go(place).sees(MARKUP)
    operator.go("#/job/" + operator.browser.execute_script("return encodeURIComponent(arguments[0])", MARKUP))
    operator.sees(f"Job {MARKUP}")
    assert operator.browser.execute_script("return window.hacked") is None
    assert operator.count("main img") == 0 and operator.count("main b > b") == 0
    assert operator.complaints() == []


def test_every_state_of_a_node_that_is_not_well_is_listed(operator: Person, stage: Stage) -> None:
    stage.put(picture(9, fault="node.unstable", response="page", subject={"node": "n00009"}))
    operator.sees("unstable 1")
    operator.find("#unwell")
    assert operator.find("tr:has(a[href='#/node/n00009']) .s-unstable").text == "unstable"


def test_an_incident_appears_and_changes_while_the_page_is_open(operator: Person, stage: Stage) -> None:
    operator.go("#/incidents").sees("5 found")
    stage.put(picture(9))
    operator.sees("6 found")
    stage.put(picture(9, state="resolved"))
    operator.sees("5 found")


def test_a_witness_that_dies_is_said_and_another_answers(operator: Person, stage: Stage) -> None:
    operator.go("#/incidents").sees("5 found")
    stage.stop_witness(0)
    assert operator.sees(f"{stage.urls[1]} answers in its place")
    operator.picture("witness-died")
    stage.put(picture(9))
    operator.sees("6 found")
    operator.go(f"#/incident/{ONE}").sees("What happens next")
    operator.press("ack", "from the other side")
    operator.sees("sent: Acknowledge")
    assert [one.key for one in stage.controls() if one.kind == "ack"] == [ONE]
    stage.stop_witness(1)
    assert operator.sees("The witness does not answer.")
    operator.picture("all-died")


def test_an_old_tab_loads_itself_again_once(operator: Person, stage: Stage) -> None:
    operator.sees("Nodes that are not well")
    operator.browser.execute_script("window.old = true")
    stage.restart_with_build(0, "another")
    operator.sees("This page is older than the witness. Load it again.")
    assert operator.browser.execute_script("return window.old") is None
    assert operator.browser.execute_script("return sessionStorage['outrider-renewed']") == "another"


def test_keys_lead_through_the_page(operator: Person) -> None:
    operator.sees("Nodes that are not well")
    operator.keys("g", "i")
    operator.sees("5 found")
    operator.keys("j", "j")
    operator.browser.switch_to.active_element.send_keys(Keys.ENTER)
    operator.sees("What happens next")
    operator.keys("a")
    assert operator.find("dialog[open]").is_displayed()
    assert violations(operator.browser) == []
    operator.picture("dialogue")
    operator.browser.switch_to.active_element.send_keys(Keys.ESCAPE)
    operator.keys("g", "f")
    operator.keys("?")
    operator.sees("next and previous line")
    assert violations(operator.browser) == []
    operator.picture("keys")
    operator.keys("?")
    canvas = operator.find("canvas")
    canvas.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_DOWN)
    operator.sees("n00001 · lost · r000 · leaf000")
    canvas.send_keys(Keys.ENTER)
    operator.sees("Last readings")


def test_page_speaks_chinese(operator: Person) -> None:
    operator.find("select[aria-label=Language] option[value=zh]").click()
    operator.sees("未结事件")
    operator.go(f"#/incident/{ONE}").sees("等待操作者批准")
    for name, (place, _) in PAGES.items():
        operator.go(place).find("main h1")
        operator.sees(CHINESE[name])
        operator.picture(f"{name}-zh")
        assert violations(operator.browser) == []
    assert operator.complaints() == []


def test_the_largest_fleet_is_drawn_whole(chromium: Any, tmp_path: Path) -> None:
    with Stage(tmp_path, fleet_of(12_500)) as stage:
        stage.beat_all()
        stage.put(*[picture(1000 + 3 * number) for number in range(100)])
        person = Person(chromium, stage.urls[0])
        person.size(1280, 900)
        person.log_in(OPERATOR).sees("healthy 12399")
        for theme in ("light", "dark"):
            dress(person, theme)
            person.picture(f"fleet-12500-{theme}")
            assert violations(chromium) == []
        person.size(390, 844)
        person.picture("fleet-12500-phone")
        person.size(1280, 900)
        assert person.complaints() == []
