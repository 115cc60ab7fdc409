"""What the dashboards show of a real cluster: real agents on emulated nodes, a job, a fault and its recovery, a real Prometheus.

Plays the run of `tests/dashboards/grafana_live.py` (about a minute), asks each query of all panels, marks, variables and rules,
and prints which have no data. `--keep SECONDS` leaves Prometheus and cluster up for a look by hand.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "dashboards"))

from grafana_live import live
from grafana_panels import choices, expressions

from dashboards.grafana.alert_rules import provisioning
from dashboards.grafana.shipped import dashboards
from outrider.config.alerts import AlertsConfig

SHIPPED = Path(__file__).resolve().parents[1] / "deploy" / "prometheus" / "prometheus.yml"


async def play(keep: float) -> None:
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        async with live(Path(folder), SHIPPED) as run:
            print(f"played {time.monotonic() - began:.0f} s")
            for one in run.incidents:
                print(f"  {one['fault']:24} {one['state']:12} {one['subject']}")
            asked, empty = Counter[str](), []
            for one in expressions(dashboards()):
                asked[one.board] += 1
                if not run.over_the_run(one.filled):
                    empty.append(f"{one.board}: {one.panel}: {one.filled}")
            for board, count in asked.items():
                print(f"{board:26} {count:3} queries, {sum(line.startswith(board) for line in empty)} without data")
            print("\n".join(f"  {line}" for line in empty))
            for choice in choices(dashboards()):
                print(f"{choice.board:26} ${choice.name}: {run.prometheus.label_values(choice.selector, choice.label)}")
            rules = [rule for group in provisioning("drill", AlertsConfig(), "p")["groups"] for rule in group["rules"]]
            fired = [rule["title"] for rule in rules if run.over_the_run(rule["data"][0]["model"]["expr"])]
            print(f"alerts with a series: {', '.join(fired)} (of {len(rules)})")
            print(f"asked after {time.monotonic() - began:.0f} s")
            if keep:
                print(f"Prometheus: {run.prometheus.url}")
                await asyncio.sleep(keep)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=float, default=0.0, metavar="SECONDS")
    asyncio.run(play(parser.parse_args().keep))


if __name__ == "__main__":
    main()
