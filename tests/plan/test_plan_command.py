"""`outrider plan` by its contract: options in, documented keys out, one line for a mistake."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from outrider.errors import InputError
from outrider.plan.command import plan

CONTRACT = {
    "mtbf_s", "failures_per_day", "survival", "interval_young_s", "interval_daly_s", "interval_s", "save_overhead",
    "lost_overhead", "overhead", "availability", "ettr", "warnings",
}  # fmt: skip


def reckon(arguments: str) -> dict:
    result = CliRunner().invoke(plan, [*arguments.split(), "--json"], standalone_mode=False)
    if result.exception:
        raise result.exception
    return json.loads(result.output)


def test_every_key_of_the_contract_is_there() -> None:
    assert reckon("--gpus 16384").keys() >= CONTRACT


def test_the_interval_given_is_used_and_the_ettr_is_metas() -> None:
    got = reckon(
        "--gpus 16384 --gpus-per-node 8 --failures-per-1000-node-days 6.5 --save-seconds 300 --restart-seconds 300 "
        "--detect-seconds 0 --interval-seconds 3600"
    )
    assert got["interval_s"] == 3_600
    assert got["ettr"] == pytest.approx(0.6244, abs=5e-5)


def test_without_an_interval_the_best_one_is_chosen() -> None:
    got = reckon("--gpus 12000 --failures-per-1000-node-days 6.5 --save-seconds 10 --restart-seconds 300")
    assert got["interval_s"] == got["interval_young_s"] == pytest.approx(421, abs=0.5)
    assert got["ettr"] == pytest.approx(0.9205, abs=5e-5)


def test_detection_counts_like_restart_in_ettr_and_availability_but_not_in_the_overhead() -> None:
    early = reckon("--mtbf-hours 10 --save-seconds 30 --restart-seconds 300 --detect-seconds 0")
    late = reckon("--mtbf-hours 10 --save-seconds 30 --restart-seconds 100 --detect-seconds 200")
    for key in ("ettr", "availability", "overhead"):
        assert early[key] == late[key]
    assert early["availability"] == pytest.approx(36_000 / 36_300)


@pytest.mark.parametrize(
    ("arguments", "key", "want"),
    [
        ("--gpus 10000 --afr 0.01", "failures_per_day", 0.27397),
        ("--gpus 10000 --afr 0.01", "mtbf_s", 3.65 * 86_400),
        ("--mtbf-hours 100 --save-seconds 1800 --interval-seconds 18000", "overhead", 0.125),
        ("--gpus 1000 --gpus-per-node 1 --failures-per-1000-node-days 1 --days 7", "survival", 0.000912),
        ("--gpus 1000 --afr 0.365 --days 7", "survival", 0.000912),
        ("--mtbf-hours 0.3 --save-seconds 0 --restart-seconds 600", "ettr", 0.4444),
        ("--gpus 16384 --observed-failures 419 --observed-days 54", "mtbf_s", 11_135.1),
        ("--gpus 8000 --parameters 1e9 --save-seconds 10", "checkpoint_bytes", 12e9),
        ("--gpus 8000 --parameters 1e12 --bandwidth-gbytes 100", "save_s", 120),
    ],
)
def test_the_founding_values_come_out_of_the_command(arguments: str, key: str, want: float) -> None:
    assert reckon(arguments)[key] == pytest.approx(want, rel=1e-3)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ("--mtbf-hours 0.0389 --save-seconds 300", "d >= 2M"),
        ("--gpus 1024 --failures-per-1000-node-days 6.5", "7.9 h"),
        ("--gpus 100000 --failures-per-1000-node-days 2.3", "18 min"),
        ("--gpus 16384", "Llama 3"),
        ("--gpus 16384 --save-seconds 9", "not Poisson"),
        ("--mtbf-hours 1 --restart-seconds 3600", "E[ETTR] is out of its range"),
        ("--gpus 10000 --afr 1", "1 % is 0.01"),
    ],
)
def test_a_formula_that_leaves_its_range_says_so(arguments: str, word: str) -> None:
    assert any(word in line for line in reckon(arguments)["warnings"])


def test_a_save_of_two_failures_length_takes_dalys_interval() -> None:
    got = reckon(f"--mtbf-hours {140 / 3600} --save-seconds 300")
    assert got["interval_s"] == got["interval_daly_s"] == pytest.approx(140)
    assert got["ettr"] == 0


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        ("", "--gpus"),
        ("--gpus 0", "--gpus"),
        ("--gpus nan", "--gpus"),
        ("--gpus 8 --afr -1", "--afr"),
        ("--gpus 8 --afr 0", "--afr"),
        ("--gpus 8 --afr 0.1 --mtbf-hours 3", "--mtbf-hours"),
        ("--mtbf-hours inf", "--mtbf-hours"),
        ("--mtbf-hours 3 --interval-seconds 0", "--interval-seconds"),
        ("--gpus 8 --observed-days 3", "--observed-days"),
        ("--gpus 8 --spare-target 1", "--spare-target"),
        ("--gpus 8 --plot plan.gif", "--plot"),
    ],
)
def test_a_value_that_makes_no_sense_is_told_with_its_option(arguments: str, key: str) -> None:
    with pytest.raises(InputError) as told:
        reckon(arguments)
    assert told.value.key == key


def test_the_file_gives_defaults_and_a_rate_on_the_command_line_replaces_its_rate(tmp_path: Path) -> None:
    file = tmp_path / "site.toml"
    file.write_text("[plan]\ngpus = 1024\nafr = 0.09\nsave_seconds = 5\n")
    assert reckon(f"--config {file}")["save_s"] == 5
    assert reckon(f"--config {file} --mtbf-hours 2")["mtbf_s"] == 7_200


def test_a_wrong_key_in_the_file_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "site.toml"
    file.write_text("[plan]\ngpu = 1024\n")
    with pytest.raises(Exception, match=r"site\.toml:2: plan.gpu: unknown key; did you mean 'gpus'"):
        reckon(f"--config {file}")


def test_people_get_a_table_with_every_warning_and_a_picture(tmp_path: Path) -> None:
    picture = tmp_path / "plan.svg"
    arguments = ["--gpus", "16384", "--parameters", "405e9", "--step-seconds", "4", "--plot", str(picture)]
    result = CliRunner().invoke(plan, arguments, catch_exceptions=False)
    assert "ETTR" in result.output and "not Poisson" in result.output
    assert "<svg" in picture.read_text()
