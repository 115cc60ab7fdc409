"""Whatever stands in a log or dump, the judges answer with findings of the contract and never with a crash."""

import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from detectors.inspect.context import make_context
from detectors.inspect.findings import Finding
from detectors.inspect.kinds import judge_of
from detectors.inspect.sources import Source
from outrider.catalogue import RESPONSES
from outrider.errors import InputError
from tests.inspect.test_dump_variants import FLIGHTS, RAS_CASES, STACKS
from tests.inspect.test_train_log_variants import CASES, RANKS

LOG_LINES = sorted({line for case in CASES for line in case.text.splitlines()})
DUMP_LINES = sorted({line for case in [*STACKS, *RAS_CASES] for line in case.text.splitlines()})
RECORDS = sorted({line for case in FLIGHTS for line in case.text.splitlines()})
CONTEXTS: list[dict[str, Any]] = [
    {},
    {"job": None},
    {"job": "j1", "ranks": RANKS, "limits": {"train_s": 300}},
    {"phase": {"name": "eval", "elapsed_s": 10}},
]


def judged(text: str, context: dict[str, Any], kind: str) -> list[Finding]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "input.txt"
        path.write_text(text, encoding="utf-8", errors="replace")
        return judge_of(kind)([Source(path)], make_context(json.loads(json.dumps(context))))


def check(found: list[Finding]) -> None:
    for one in found:
        shown = json.loads(json.dumps(one.to_json()))
        assert shown["response"] in RESPONSES and shown["explanation"]
        assert len(shown["evidence"]) <= 20


@settings(max_examples=120, deadline=None)
@given(st.lists(st.sampled_from(LOG_LINES) | st.text(max_size=60), max_size=40), st.sampled_from(CONTEXTS))
def test_any_order_of_log_lines_is_judged(lines: list[str], context: dict[str, Any]) -> None:
    check(judged("\n".join(lines) + "\n", context, "train_log"))


@settings(max_examples=80, deadline=None)
@given(st.lists(st.sampled_from(DUMP_LINES) | st.text(max_size=60), max_size=60), st.sampled_from(CONTEXTS))
def test_any_order_of_stack_lines_is_judged_or_refused(lines: list[str], context: dict[str, Any]) -> None:
    try:
        check(judged("\n".join(lines) + "\n", context, "dump"))
    except InputError as error:
        assert "\n" not in str(error)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.sampled_from(RECORDS), min_size=1, max_size=12), st.sampled_from(CONTEXTS))
def test_any_mixture_of_flight_records_is_judged(lines: list[str], context: dict[str, Any]) -> None:
    check(judged("\n".join(lines) + "\n", context, "dump"))


def test_a_folder_of_rank_logs_is_one_story(tmp_path: Path) -> None:
    """Ranks are known by the names of their files, and lines are put in order by their stamps."""
    waits = "2026-06-11 03:12:51 ncclRemoteError: A call failed possibly due to a network error.\n"
    for rank in range(3):
        text = "2026-06-11 03:12:02 torch.OutOfMemoryError: CUDA out of memory.\n" if rank == 2 else waits
        (tmp_path / f"rank_{rank}.log").write_text("2026-06-11 03:00:00 INFO starting\n" * 50 + text)
    sources = [Source(path, file=str(path)) for path in sorted(tmp_path.iterdir())]
    found = judge_of("train_log")(sources, make_context({"job": "j1"}))
    assert [(one.fault, one.subject) for one in found] == [("job.oom", {"job": "j1", "rank": 2})]
    assert found[0].evidence[0].file == str(tmp_path / "rank_2.log")
