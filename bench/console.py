"""How fast the console is: a real headless Chromium, 12,500 nodes, 100 live incidents.

In the page: until something is painted and until the map stands, both since the navigation began (the tab knows its token); from a
message's arrival to the drawn map. From outside, on one clock: from a commit to the ledger to the drawn map; and the server's time
for one look at everything. `--json` prints one object; `--nodes`, `--incidents`, `--runs`.
"""

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "console"))

import pytest
from console_stage import OPERATOR, Stage, fleet_of, picture

from dashboards.console.feed import Feed


def open_browser() -> Any:
    from conftest import open_chromium

    return open_chromium()


def visit(person: Any) -> dict[str, float]:
    """One load of the page by somebody whose token the tab knows: milliseconds since the navigation began."""
    person.browser.refresh()
    person.find("canvas")
    script = """
      const done = arguments[0];
      const look = () => {
        const map = performance.getEntriesByName("outrider-map")[0];
        const paint = performance.getEntriesByName("first-contentful-paint")[0];
        if (!map || !paint) return setTimeout(look, 20);
        done({first_paint_ms: paint.startTime, map_ms: map.startTime});
      };
      look();"""
    told: dict[str, float] = person.browser.execute_async_script(script)
    return told


def update(person: Any, stage: Stage, number: int) -> tuple[float, float]:
    """One more incident: milliseconds from its arrival in the page to the drawn map, and from the commit to the drawn map."""
    person.browser.execute_script("performance.clearMarks('outrider-told'); performance.clearMarks('outrider-drawn')")
    script = """
      const [place, done] = arguments;
      const look = () => {
        const drawn = performance.getEntriesByName("outrider-drawn").at(-1);
        const before = (one) => one.startTime <= drawn.startTime;
        const told = drawn && performance.getEntriesByName("outrider-told").filter(before).at(-1);
        if (!told) return requestAnimationFrame(look);
        done([drawn.startTime - told.startTime, performance.timeOrigin + drawn.startTime]);
      };
      look();"""
    began: list[float] = []

    def put() -> None:
        time.sleep(0.3)  # the page must be listening, and the feed at rest
        began.append(time.time() * 1e3)
        stage.put(picture(number))

    writer = threading.Thread(target=put)
    writer.start()
    inside, at = person.browser.execute_async_script(script, number)
    writer.join()
    return float(inside), float(at) - began[0]


def look_seconds(stage: Stage) -> float:
    """The server's time for one look at everything."""
    feed = Feed(stage.pages[0], 1)
    times = []
    for _ in range(5):
        began = time.perf_counter()
        stage.do(feed._look())
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def measure(nodes: int, incidents: int, runs: int) -> dict[str, Any]:
    browser = open_browser()
    from console_browser import Person

    try:
        with tempfile.TemporaryDirectory() as folder, Stage(Path(folder), fleet_of(nodes)) as stage:
            over = threading.Event()

            def beat() -> None:
                while not over.wait(1.0):
                    stage.beat_all()

            stage.beat_all()
            threading.Thread(target=beat, daemon=True).start()
            stage.put(*[picture(1000 + number) for number in range(incidents)])
            person = Person(browser, stage.urls[0]).log_in(OPERATOR)
            person.find("canvas")
            visits = [visit(person) for _ in range(runs)]
            person.picture(f"fleet-{nodes}")
            updates = [update(person, stage, 100 + number) for number in range(runs)]
            look = look_seconds(stage)
            over.set()
    finally:
        browser.quit()
    return {
        "nodes": nodes, "incidents": incidents, "runs": runs,
        "first_paint_ms": _spread([one["first_paint_ms"] for one in visits]),
        "map_ms": _spread([one["map_ms"] for one in visits]),
        "update_in_page_ms": _spread([inside for inside, _ in updates]),
        "commit_to_map_ms": _spread([whole for _, whole in updates]),
        "look_ms": round(look * 1e3, 1),
    }  # fmt: skip


def _spread(values: list[float]) -> dict[str, float]:
    return {"median": round(statistics.median(values), 1), "max": round(max(values), 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=12_500)
    parser.add_argument("--incidents", type=int, default=100)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    try:
        told = measure(options.nodes, options.incidents, options.runs)
    except pytest.skip.Exception as reason:
        print(f"not measured: {reason}")
        return
    if options.json:
        print(json.dumps(told))
        return
    for key, value in told.items():
        print(f"{key:20} {value}")


if __name__ == "__main__":
    main()
