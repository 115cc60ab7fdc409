"""`outrider dashboards --push`: the maintained client, in its own environment, against a fake of Grafana's API."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from grafana_fake import TOKEN, Grafana, serving

from dashboards.grafana.command import dashboards
from outrider.errors import InputError

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-grafana" / "bin" / "python"
#: The command as the shell would run it; the package itself is not installed in that environment.
RUN = (
    "import sys\nfrom dashboards.grafana.command import dashboards\nfrom outrider.errors import OutriderError\n"
    "try: sys.exit(dashboards.main(sys.argv[1:], standalone_mode=False))\n"
    "except OutriderError as error: sys.exit(f'outrider: {error}')"
)
pushes = pytest.mark.skipif(not PYTHON.exists(), reason="the client's environment is not there: `make grafana` makes it")


@pytest.fixture
def grafana() -> Iterator[Grafana]:
    with serving() as made:
        yield made
        assert not made.wrong, "not as the published OpenAPI says"


@pytest.fixture
def token(tmp_path: Path) -> str:
    path = tmp_path / "grafana.token"
    path.write_text(f"{TOKEN}\n")
    return str(path)


def push(grafana: Grafana, token: str, *more: str) -> "subprocess.CompletedProcess[str]":
    command = [PYTHON, "-c", RUN, "--push", grafana.url, "--token-file", token, "--json", *more]
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=120
    )


def outcomes(done: "subprocess.CompletedProcess[str]") -> dict[str, Any]:
    return {told["uid"]: told["outcome"] for told in map(json.loads, done.stdout.splitlines())}


@pushes
@pytest.mark.real
def test_new_dashboards_are_made_in_our_folder_and_a_second_push_changes_nothing(grafana: Grafana, token: str) -> None:
    first = push(grafana, token)
    assert (first.returncode, set(outcomes(first).values())) == (0, {"made"}), first.stderr
    assert grafana.folders == {"outrider": "Outrider"}
    second = push(grafana, token)
    assert (second.returncode, set(outcomes(second).values())) == (0, {"as it was"}), second.stderr
    assert all(len(versions) == 1 for versions in grafana.versions.values())
    assert set(grafana.groups) == grafana.open_to_changes == {"outrider-faults", "outrider-itself"}


@pushes
@pytest.mark.real
def test_a_dry_run_says_what_would_be_and_sends_nothing(grafana: Grafana, token: str) -> None:
    done = push(grafana, token, "--dry-run")
    assert (done.returncode, set(outcomes(done).values())) == (0, {"made"}), done.stderr
    assert {method for method, _ in grafana.calls} == {"GET"}
    assert not grafana.folders and not grafana.boards and not grafana.groups


@pushes
@pytest.mark.real
def test_rules_are_left_out_where_alertmanager_tells_people(grafana: Grafana, token: str) -> None:
    assert "alert rules outrider-faults" not in outcomes(push(grafana, token, "--no-alert-rules"))
    assert not grafana.groups


@pushes
@pytest.mark.real
def test_a_persons_rule_is_kept_and_an_older_one_of_ours_is_replaced(grafana: Grafana, token: str) -> None:
    push(grafana, token)
    grafana.edit_rule("outrider-faults", 3, **{"for": "10m"})
    told = outcomes(push(grafana, token))
    assert (told["alert rules outrider-faults"], told["alert rules outrider-itself"]) == ("conflict", "as it was")
    assert grafana.groups["outrider-faults"]["rules"][3]["for"] == "10m"
    assert outcomes(push(grafana, token, "--overwrite"))["alert rules outrider-faults"] == "changed"
    assert grafana.groups["outrider-faults"]["rules"][3]["for"] != "10m"
    assert outcomes(push(grafana, token, "--store", "another"))["alert rules outrider-faults"] == "changed"
    grafana.groups["outrider-itself"]["rules"].append(
        {**grafana.groups["outrider-itself"]["rules"][0], "uid": "x", "annotations": {}}
    )
    assert outcomes(push(grafana, token))["alert rules outrider-itself"] == "conflict"


@pushes
@pytest.mark.real
def test_grafana_13_hides_what_is_not_there(grafana: Grafana, token: str) -> None:
    grafana.may_see_absence = False
    assert set(outcomes(push(grafana, token)).values()) == {"made"}


@pushes
@pytest.mark.real
@pytest.mark.parametrize(
    ("refusal", "words"),
    [
        ({"message": "A dashboard with the same uid already exists", "status": "version-mismatch"}, "run it again"),
        ({"message": "A dashboard with the same name in the folder already exists", "status": "name-exists"}, "rename"),
        ({"message": "The dashboard belongs to plugin X.", "status": "plugin-dashboard"}, "a plugin"),
        ({"message": "something new"}, "something new"),
    ],
)
def test_each_kind_of_refusal_is_a_conflict_with_what_to_do(
    grafana: Grafana, token: str, refusal: dict[str, Any], words: str
) -> None:
    grafana.refusal = refusal
    done = push(grafana, token)
    assert done.returncode == 1
    assert all(words in told["detail"] for told in map(json.loads, done.stdout.splitlines()) if told["uid"].startswith("outrider-"))


@pushes
@pytest.mark.real
def test_a_token_without_the_right_is_one_line(grafana: Grafana, token: str) -> None:
    grafana.may_write = False
    done = push(grafana, token)
    assert "role Editor" in done.stderr and "additional permissions" in done.stderr and len(done.stderr.splitlines()) == 1


@pushes
@pytest.mark.real
def test_a_persons_change_is_kept_and_an_older_one_of_ours_is_replaced(grafana: Grafana, token: str) -> None:
    push(grafana, token)
    grafana.save({**grafana.boards["outrider-fleet"], "title": "Mine"}, "ada", "nicer")
    grafana.save({**grafana.boards["outrider-job"], "title": "Old"}, "sa-outrider", "outrider dashboards 0.0.9")
    done = push(grafana, token)
    assert done.returncode == 1
    assert (outcomes(done)["outrider-fleet"], outcomes(done)["outrider-job"]) == ("conflict", "changed")
    assert "ada" in done.stdout
    assert (grafana.boards["outrider-fleet"]["title"], grafana.boards["outrider-job"]["title"]) == ("Mine", "Outrider / Job")
    assert outcomes(push(grafana, token, "--overwrite"))["outrider-fleet"] == "changed"
    assert grafana.boards["outrider-fleet"]["title"] == "Outrider / Fleet"


@pushes
@pytest.mark.real
def test_a_save_in_between_is_a_conflict_and_the_others_are_sent(grafana: Grafana, token: str) -> None:
    push(grafana, token)
    for uid in list(grafana.boards):
        grafana.save({**grafana.boards[uid], "title": "Old"}, "sa-outrider", "outrider dashboards 0.0.9")

    def interfere(uid: str) -> None:
        if uid == "outrider-node":
            grafana.save({**grafana.boards[uid], "title": "Just now"}, "bob", "")

    grafana.before_save = interfere
    done = push(grafana, token)
    told = outcomes(done)
    assert done.returncode == 1
    assert told.pop("outrider-node") == "conflict"
    assert set(told.values()) == {"changed", "as it was"}
    assert grafana.boards["outrider-node"]["title"] == "Just now"


@pushes
@pytest.mark.real
def test_what_a_file_provides_is_left_to_the_file(grafana: Grafana, token: str) -> None:
    push(grafana, token)
    grafana.provisioned.add("outrider-fleet")
    done = push(grafana, token)
    assert done.returncode == 1 and "provisioned" in done.stderr and len(done.stderr.splitlines()) == 1


@pushes
@pytest.mark.real
def test_a_wrong_token_and_a_silent_server_are_one_line_without_the_token(grafana: Grafana, tmp_path: Path, token: str) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("glsa_secret")
    done = push(grafana, str(wrong))
    assert "token is not known" in done.stderr and "glsa_secret" not in done.stderr and len(done.stderr.splitlines()) == 1
    grafana.url = "http://127.0.0.1:9"
    done = push(grafana, token)
    assert "does not answer" in done.stderr and TOKEN not in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "where to write"),
        (["--push", "http://127.0.0.1:9"], "no file with Grafana's token"),
        (["--push", "http://127.0.0.1:9", "--token-file", "{none}"], "cannot be read"),
        (["--push", "http://127.0.0.1:9", "--token-file", "{empty}"], "one token"),
        (["{file}/x"], "cannot be written"),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, arguments: list[str], words: str) -> None:
    (tmp_path / "empty").write_text("\n")
    filled = [part.format(none=tmp_path / "none", empty=tmp_path / "empty", file=tmp_path / "empty") for part in arguments]
    result = CliRunner().invoke(dashboards, filled)
    assert isinstance(result.exception, InputError)
    assert words in str(result.exception) and "\n" not in str(result.exception)
