"""The drill's report: every pair of curves is also a picture of its own that a browser can open."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

from drills.drill.report import write_report
from drills.drill.result import Outcome


def test_each_pair_of_loss_curves_is_also_a_file(tmp_path: Path) -> None:
    curve = {step: 3.0 / (step + 1) for step in range(5)}
    drawn = Outcome(fault="kill", story="a rank is killed", losses=curve, baseline_losses=curve, resumed_step=2)
    page = write_report(tmp_path, [drawn, Outcome(fault="jitter", story="no fault"), drawn], {"seed": 7})
    assert sorted(path.name for path in tmp_path.glob("*.svg")) == ["loss-01-kill.svg", "loss-03-kill.svg"]
    assert ElementTree.parse(tmp_path / "loss-01-kill.svg").getroot().tag.endswith("svg")
    assert page.read_text().count("<svg") == 2
    assert not list(tmp_path.glob("*.part"))
