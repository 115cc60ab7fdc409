"""Every command that takes the site's file reads it whole: its overrides count, and a mistake anywhere in it is one line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

TRACE = [
    {"kind": "fleet", "nodes": [{"node": "n1", "gpus": 2}, {"node": "n2", "gpus": 2}], "until": 60.0,
     "jobs": [{"job": "j1", "slots": [["n1", 0], ["n2", 0]]}], "auto": {"heartbeat_s": 1.0, "step_s": {"j1": 2.0}}},
    {"t": 20.0, "kind": "xid", "node": "n1", "gpu": 0, "value": 63, "text": "NVRM: Xid (PCI:0000:3b:00): 63, Row Remapper"},
]  # fmt: skip
COMMANDS = {
    "replay": ["replay", "TRACE"],
    "explain-incident": ["explain-incident", "TRACE"],
    "inspect": ["inspect", "TRACE"],
    "explain": ["explain", "xid", "63"],
    "plan": ["plan", "--gpus", "16"],
    "simulate": ["simulate", "--nodes", "8", "--days", "0.01", "--mix", "none"],
    "topology": ["topology"],
}


def outrider(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "outrider.cli.shell", *arguments], capture_output=True, text=True, timeout=120)


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "trace.jsonl"
    path.write_text("\n".join(map(json.dumps, TRACE)) + "\n")
    return str(path)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[site]\nnmae = "x"\n', ":2: site.nmae: unknown key; did you mean 'name'?"),
        ("[policy]\nhard_limit_second = 3\n", ":2: policy.hard_limit_second: unknown key; did you mean 'hard_limit_seconds'?"),
        ('[catalogue.xid.99999]\nresponse = "page"\n', "catalogue.xid.99999: no xid has the number '99999'"),
    ],
    ids=["site", "policy", "catalogue"],
)
def test_a_mistake_anywhere_in_the_sites_file_is_one_line(command: str, text: str, said: str, tmp_path: Path, trace: str) -> None:
    site = tmp_path / "site.toml"
    site.write_text(text)
    done = outrider(*(trace if one == "TRACE" else one for one in COMMANDS[command]), "--config", str(site))
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith(f"outrider: {site}") and said in done.stderr and done.stderr.count("\n") == 1


def test_replay_and_its_explanation_judge_a_code_as_the_site_says(tmp_path: Path, trace: str) -> None:
    site = tmp_path / "site.toml"
    site.write_text('[site]\nmode = "act"\n[catalogue.xid.63]\nresponse = "drain"\nrepair = "replace_part"\ndecisive = true\n')
    before = [json.loads(line) for line in outrider("replay", trace, "--json").stdout.splitlines()]
    after = [json.loads(line) for line in outrider("replay", trace, "--json", "--config", str(site)).stdout.splitlines()]
    assert {line["repair"] for line in before} != {"replace_part"} == {line["repair"] for line in after}
    [story] = map(json.loads, outrider("explain-incident", trace, "--json", "--config", str(site)).stdout.splitlines())
    assert story["response"] == "drain" and before[-1]["response"] != "drain"
