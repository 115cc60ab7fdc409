"""The drill's report: one HTML file with timeline and loss curves; beside it `report.json` and each picture as SVG."""

import html
import io
import json
import platform
from importlib.resources import files
from pathlib import Path
from typing import Any

from drills.drill.result import FIGURES, Outcome


def write_report(folder: Path, outcomes: list[Outcome], about: dict[str, Any]) -> Path:
    """Writes `report.json`, `report.html` and a `loss-NN-FAULT.svg` for each pair of curves into `folder`.

    Each comes by a temporary name and a rename. Returns the page's path.
    """
    machine = about | {"machine": platform.platform(), "python": platform.python_version()}
    objects = [outcome.to_json() | {"timeline": outcome.timeline, "notes": outcome.notes} for outcome in outcomes]
    _write(folder / "report.json", json.dumps({"about": machine, "faults": objects}, indent=1))
    pictures = [_curves(outcome) if outcome.losses and outcome.baseline_losses else "" for outcome in outcomes]
    for number, (outcome, picture) in enumerate(zip(outcomes, pictures, strict=True), 1):
        if picture:
            _write(folder / f"loss-{number:02}-{outcome.fault}.svg", picture)
    page = folder / "report.html"
    _write(page, _page(outcomes, pictures, machine))
    return page


def _write(path: Path, text: str) -> None:
    temporary = path.with_suffix(path.suffix + ".part")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def _page(outcomes: list[Outcome], pictures: list[str], about: dict[str, Any]) -> str:
    good = sum(outcome.ok for outcome in outcomes)
    facts = "".join(f"<li><b>{html.escape(str(key))}</b>: {html.escape(str(value))}</li>" for key, value in about.items())
    sections = "".join(_section(outcome, picture) for outcome, picture in zip(outcomes, pictures, strict=True))
    style = (files("drills.drill") / "report.css").read_text(encoding="utf-8")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>Outrider drill</title><style>{style}</style></head><body><h1>Outrider drill</h1>"
        f"<p>{good} of {len(outcomes)} faults came out right. All times are seconds after the fault.</p>"
        f"{_table(outcomes)}{sections}<h2>How it was run</h2><ul>{facts}</ul></body></html>"
    )


def _table(outcomes: list[Outcome]) -> str:
    heads = "".join(f"<th>{html.escape(title)}</th>" for title in FIGURES.values())
    rows = "".join(
        f"<tr><td>{html.escape(outcome.fault)} {_verdict(outcome)}</td>"
        + "".join(f"<td>{outcome.cell(key)}</td>" for key in FIGURES)
        + "</tr>"
        for outcome in outcomes
    )
    return f"<table><thead><tr><th>fault</th>{heads}</tr></thead><tbody>{rows}</tbody></table>"


def _verdict(outcome: Outcome) -> str:
    return '<span class="good">right</span>' if outcome.ok else '<span class="bad">WRONG</span>'


def _section(outcome: Outcome, picture: str) -> str:
    steps = "".join(
        f"<li><time>{at:+.3f} s</time>{html.escape(text)}</li>" for at, text in sorted(outcome.timeline, key=lambda entry: entry[0])
    )
    failures = "".join(f'<li class="bad">{html.escape(failure)}</li>' for failure in outcome.failures)
    notes = "".join(f'<li class="soft">{html.escape(note)}</li>' for note in outcome.notes)
    curves = f"<figure>{picture}</figure>" if picture else ""
    return (
        f"<h2>{html.escape(outcome.fault)}</h2><p>{html.escape(outcome.story)}</p><ul>{failures}{notes}</ul>"
        f'<ol class="timeline">{steps}</ol>{curves}'
    )


def _curves(outcome: Outcome) -> str:
    """Both loss curves as SVG: the undisturbed run wide and pale below, the disturbed one thin above it."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.2), layout="constrained")
    axes = figure.add_subplot()
    axes.plot(
        list(outcome.baseline_losses),
        list(outcome.baseline_losses.values()),
        lw=5,
        color="#b9cbe0",
        label="never disturbed",
    )
    axes.plot(
        list(outcome.losses),
        list(outcome.losses.values()),
        lw=1.2,
        color="#b3261e",
        label=f"with fault: {outcome.fault}",
    )
    if outcome.resumed_step is not None:
        axes.axvline(outcome.resumed_step, color="#555", lw=0.8, ls="--", label=f"resumed after step {outcome.resumed_step}")
    axes.set(xlabel="step", ylabel="loss (nats a byte)")
    axes.legend(frameon=False)
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()[text.getvalue().index("<svg") :]
