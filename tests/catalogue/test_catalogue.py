"""One catalogue: every fault class is described whole, has a runbook that is true, and every code belongs to a class."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from outrider.catalogue import FAULTS, RESPONSES
from outrider.catalogue.codes import CodeBook
from outrider.catalogue.library import find_library_error, library_errors
from outrider.catalogue.reading import read_code
from outrider.config.catalogue import CatalogueSection, CodeOverride
from outrider.errors import InputError
from outrider.explain.command import explain, runbooks
from outrider.explain.pages import runbook
from outrider.parsers.nccl import IB_STATUS
from outrider.parsers.sxid import parse_sxid
from outrider.parsers.xid import parse_xid
from outrider.signals import KINDS

RUNBOOKS = Path(__file__).parents[2] / "docs" / "runbooks"


@pytest.mark.parametrize("key", FAULTS)
def test_every_fault_class_is_described_whole(key: str) -> None:
    entry = FAULTS[key]
    for name in ("summary", "meaning", "witnesses", "advice", "first_commands", "false_alarms", "undo", "source"):
        assert getattr(entry, name), f"{key} lacks {name}"
    assert set(entry.witnesses) <= set(KINDS)
    assert entry.decisive is False or "decisive" in entry.witnesses.values(), "decisive, but no signal of it is"
    assert entry.summary.endswith(".") and entry.summary == entry.summary.strip()


@pytest.mark.parametrize("key", FAULTS)
def test_every_fault_class_has_a_runbook_that_is_true(key: str) -> None:
    page = RUNBOOKS / f"{key}.md"
    assert page.exists(), f"write it: outrider runbooks {RUNBOOKS.name}"
    assert page.read_text() == runbook(FAULTS[key], CodeBook()), "stale: run `outrider runbooks docs/runbooks`"


def test_no_runbook_is_left_of_a_class_that_is_gone() -> None:
    assert {page.stem for page in RUNBOOKS.glob("*.md")} == set(FAULTS)


def test_the_command_writes_the_runbooks(tmp_path: Path) -> None:
    result = CliRunner().invoke(runbooks, [str(tmp_path)], standalone_mode=False)
    assert result.return_value == 0 and len(list(tmp_path.glob("*.md"))) == len(FAULTS)


@pytest.mark.parametrize("number", range(1, 177))
def test_every_xid_has_meaning_role_class_and_source(number: int) -> None:
    code = CodeBook().xid(number)
    assert code.code == number and code.meaning and code.source and code.fault in FAULTS
    if code.decisive:
        assert code.role == "root" and RESPONSES.index(code.response) >= RESPONSES.index("drain")
    if code.role in ("app", "secondary", "info", "injected"):
        assert RESPONSES.index(code.response) <= RESPONSES.index("watch")


def test_an_unknown_code_is_never_fatal_by_its_number() -> None:
    code = CodeBook().xid(999)
    assert (code.role, code.response) == ("info", "watch")


def read(line: str):
    signal = parse_xid(line) if line.startswith("NVRM") else parse_sxid(line)
    assert signal is not None
    return read_code(signal, CodeBook())


@pytest.mark.parametrize(
    ("text", "role", "response"),
    [
        ("154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)", "verdict", "restart"),
        ("154, GPU recovery action changed from 0x2 (Node Reboot Required) to 0x0 (None)", "verdict", "ignore"),
        ("154, GPU recovery action changed from 0x0 (None) to 0x5 (Recover IMEX Domain)", "verdict", "page"),
        ("149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 09 (0x02600000 0x0 0x0 0x0 0x0 0x0)", "info", "ignore"),  # reason 38
        ("149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 09 (0x00200000 0x0 0x0 0x0 0x0 0x0)", "root", "restart"),  # reason 2: cable
        ("149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 09 (0x00f00000 0x0 0x0 0x0 0x0 0x0)", "root", "page"),  # reason 15: software
        ("149, NETIR_LINK_EVT  Fatal   XC0 i1 Link 09 (0x00200000 0x0 0x0 0x0 0x0 0x0)", "injected", "ignore"),
        ("145, RLW_REMAP Nonfatal XC1 i0 Link 10 (0x00000004 0x00000040 0x0 0x0 0x0 0x0)", "info", "ignore"),
        ("74, NVLink: fatal error detected on link 3(0x100, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)", "root", "restart"),
        ("74, NVLink: fatal error detected on link 3(0x200000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)", "root", "drain"),
        ("74, NVLink: fatal error detected on link 3(0x0, 0x0, 0x0, 0x10000, 0x0, 0x0, 0x0)", "secondary", "page"),
        ("74, NVLink: fatal error detected on link 3(0x0, 0x0, 0x0, 0x0, 0x100000, 0x0, 0x0)", "info", "ignore"),
    ],
)
def test_the_text_of_a_line_decides_where_the_number_does_not(text: str, role: str, response: str) -> None:
    reading = read(f"NVRM: Xid (PCI:0000:3b:00): {text}")
    assert (reading.role, reading.response) == (role, response)


@pytest.mark.parametrize(
    ("text", "response"),
    [
        ("20034, Fatal, Link 46 LTSSM Fault Up", "restart"),
        ("20034, Non-fatal, Link 46 LTSSM Fault Up", "ignore"),
        ("23001, Fatal, buffer overflow, instance=1, chiplet=2", "restart"),
        ("12028, Non-fatal, Link 1 egress non-posted PRIV error", "ignore"),
        ("12028, Fatal, Link 1 egress non-posted PRIV error", "restart"),
        ("31999, Fatal, Link 1 something new", "restart"),
        ("31999, something new", "ignore"),
    ],
)
def test_the_severity_word_of_a_switch_line_decides(text: str, response: str) -> None:
    assert read(f"nvidia-nvswitch3: SXid (PCI:0000:c5:00.0): {text}").response == response


def test_the_site_overrides_a_code_and_explain_says_so() -> None:
    codes = CodeBook(CatalogueSection(xid={"63": CodeOverride(response="drain", why="the provider's advice")}))
    assert codes.xid(63).response == "drain" and codes.xid(63).overridden == "the provider's advice"
    assert CodeBook().xid(63).response == "watch"


@pytest.mark.parametrize(("code", "fault"), [("7900", None), ("seventy", None), ("79", "gpu.nonsense")])
def test_an_override_of_nothing_is_an_error_that_names_the_key(code: str, fault: str | None) -> None:
    with pytest.raises(ValueError, match=f"catalogue.xid.{code}"):
        CatalogueSection(xid={code: CodeOverride(fault=fault)})


def test_both_tables_of_completion_statuses_agree() -> None:
    for number, status in IB_STATUS.items():
        found = find_library_error(f"status={number}")
        assert found is not None, number
        assert status.name in found.name or "others" in found.name, (status.name, found.name)
        by_name = find_library_error(f"status={status.name}({number})")
        assert by_name is not None and number in by_name.numbers


def test_every_library_error_belongs_to_a_class() -> None:
    assert all(entry.fault in FAULTS and entry.advice for entry in library_errors())


def call(*words: str) -> dict:
    result = CliRunner().invoke(explain, [*words, "--json"], standalone_mode=False)
    assert result.return_value == 0, result.exception
    return json.loads(result.output)


def test_explain_answers_for_codes_classes_and_messages() -> None:
    assert call("xid", "79")["decisive"] is True and call("xid", "79")["repair"] == "reboot_node"
    assert call("sxid", "12028")["response"] == "ignore"
    assert call("gpu.nvlink")["culprit"] == "link" and call("gpu.nvlink")["first_commands"]
    assert call("nccl", "status=12")["fault"] == "link.errors"
    assert call("nccl", "IBV_WC_WR_FLUSH_ERR(5)")["response"] == "ignore"
    for words in (("xid", "79"), ("gpu.nvlink",), ("nccl", "status=12")):
        assert "source" in CliRunner().invoke(explain, words, standalone_mode=False).output


@pytest.mark.parametrize(
    "words", [("xid", "many"), ("xid",), ("sxid", "-1"), ("xid", "9" * 9), ("xid", "-", "3x")]
)
def test_explain_of_a_code_that_can_be_none_is_one_clear_line(words: tuple[str, ...]) -> None:
    result = CliRunner().invoke(explain, ["--", *words], standalone_mode=False)
    assert isinstance(result.exception, InputError) and len(str(result.exception).splitlines()) == 1


@pytest.mark.parametrize(
    ("spelt", "what"),
    [
        ("XID79", "xid 79"), ("Xid-79", "xid 79"), ("xid: 79", "xid 79"), ("xid error 79", "xid 79"), ("xid_79", "xid 79"),
        ("SXid12028", "sxid 12028"), ("sxid #12028", "sxid 12028"), ("GPU.NVLink", "gpu.nvlink"),
        ("NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.", "xid 79"),
        ("nvidia-nvswitch0: SXid (PCI:0000:89:00.0): 12028, Non-fatal, Link 12 egress", "sxid 12028"),
        ("ncclRemoteError", "nccl ncclRemoteError"), ("NCCL status=12", "nccl IBV_WC_RETRY_EXC_ERR"),
        ("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3", "nccl Watchdog caught collective operation timeout"),
    ],
)  # fmt: skip
def test_explain_reads_every_spelling_of_a_thing(spelt: str, what: str) -> None:
    assert call(spelt)["what"] == what
    assert call(*spelt.split())["what"] == what


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("xid 9999", "xid 99"), ("sxid 1202", "sxid 12028"), ("gpu.nvlnk", "gpu.nvlink"), ("NVLink", "gpu.nvlink"),
        ("hang", "job.hang"),
        ("nccl timeout", 'nccl "watchdog caught collective"'), ("nccl time-out", 'nccl "watchdog caught collective"'),
        ("oom", "job.oom"), ("79", "xid 79"), ("12", 'nccl "status=12"'), ("gpu fell off the bus", "gpu.fallen_off_bus"),
    ],
)  # fmt: skip
def test_explain_of_the_unknown_names_what_is_near_and_ends_with_one(text: str, near: str) -> None:
    result = CliRunner().invoke(explain, [text, "--json"], standalone_mode=False)
    told = json.loads(result.output)
    assert result.return_value == 1 and told["unknown"] == text and near in [one["say"] for one in told["near"]], told
    shown = CliRunner().invoke(explain, [text], standalone_mode=False)
    assert shown.return_value == 1 and f"outrider explain {near} " in shown.output
    status = CliRunner().invoke(explain, [*near.replace('"', "").split()], standalone_mode=False)
    assert status.return_value == 0, near  # what is proposed is known


@pytest.mark.parametrize("text", ["nccl frobnicate", "a song", "gpu.zzzzzz", "?", "sxid 1"])
def test_explain_of_nothing_near_says_how_to_ask(text: str) -> None:
    result = CliRunner().invoke(explain, [text], standalone_mode=False)
    assert result.return_value == 1 and "knows nothing called" in result.output
