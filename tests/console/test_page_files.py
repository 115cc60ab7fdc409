"""The page's own files: complete, small, translated, and unable to turn a name into markup."""

import re
from pathlib import Path

import pytest

from dashboards.console import pages
from dashboards.console.shell import Shell, content_policy
from dashboards.console.states import LETTERS
from outrider.catalogue import FAULTS

STATIC = Path(pages.__file__).parent / "static"
OWN = sorted(STATIC.glob("*.js"))
#: Ways from text to markup or to a program, and addresses of elsewhere.
BANNED = (
    "innerHTML", "outerHTML", "insertAdjacentHTML", "dangerouslySetInnerHTML", "document.write", "eval(", "new Function", "http://",
    "https://",
)  # fmt: skip
TRANSLATED = (STATIC / "zh.js").read_text(encoding="utf-8")


def test_every_text_of_the_page_has_its_chinese() -> None:
    keys = {
        key.replace('\\"', '"') for path in OWN for key in re.findall(r'\bt\("((?:[^"\\]|\\.)*)"', path.read_text(encoding="utf-8"))
    }
    assert len(keys) > 150
    assert [key for key in sorted(keys) if f'"{key}":' not in TRANSLATED] == []


def test_every_fault_class_and_state_has_its_chinese() -> None:
    assert [key for key in FAULTS if f'"{key}":' not in TRANSLATED] == []
    assert [state for state in LETTERS if f'"{state}":' not in TRANSLATED] == []


def test_page_and_witness_mean_the_same_by_each_letter() -> None:
    table = re.search(r"LETTERS = \{(.*?)\}", (STATIC / "ui.js").read_text(), re.S)
    assert table is not None
    assert {name: letter for letter, name in re.findall(r'(\w): "(\w+)"', table[1])} == LETTERS


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.name)
def test_no_file_makes_markup_from_text_or_asks_elsewhere(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for banned in BANNED:
        assert banned not in text, banned
    assert text.count("\n") < 300


def test_index_loads_every_file_of_its_own_build_and_no_inline_script() -> None:
    text = (STATIC / "index.html").read_text()
    for path in OWN:
        assert f"static/@BUILD@/{path.name}" in text, path.name
    assert re.findall(r"<script(?![^>]*src=)", text) == [] and "<style" not in text and " style=" not in text


def test_libraries_come_with_their_licences() -> None:
    for name in ("htm", "preact", "uplot"):
        assert len((STATIC / "vendor" / f"LICENSE.{name}.txt").read_text()) > 500


def test_policy_allows_nothing_inline_and_only_the_witnesses() -> None:
    policy = content_policy(["http://10.0.0.1:7000"])
    assert (
        "unsafe" not in policy and "connect-src 'self' http://10.0.0.1:7000;" in policy and policy.startswith("default-src 'none'")
    )


def test_build_is_the_same_each_time() -> None:
    assert Shell().build == Shell().build
