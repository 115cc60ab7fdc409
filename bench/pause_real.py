"""The pause scenarios with real processes: agents are stopped and continued in real time before real witnesses.

    python bench/pause_real.py SCENARIO.json [--blocks 1,2,..] [--witnesses 3|5] [--job] [--out FOLDER]

`outrider up` with the witnesses (mode observe) and one `outrider agent` a member, without collectors. A pause stops the agent's
whole process group. `--job`: the drill's training job runs beside, one rank a member, and steps all the time. Nobody dies, so
every confirmed incident is false. Status 1: one above `watch` was confirmed in a block whose pauses last 30 s or less, or before
the first, or, with `--job`, a restart in any block; 2: the measurement itself failed. Logs and journals stay in `--out`; without
it they are kept only where something went wrong. Everything that was started ends with this process.
"""

import argparse
import asyncio
import gzip
import json
import os
import platform
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from pause_stage import PACE_SECONDS, Stage

from drills.cluster.kernel import unshare_network
from drills.drill.processes import DrillError
from outrider.catalogue import RESPONSES

#: Longest pause, seconds, that must lead to no confirmed incident above `watch`.
BORNE_SECONDS = 30.0
#: Seconds of quiet before the first pause, so that the witnesses know the pace of heartbeats.
QUIET_SECONDS = 10.0
RESTART = RESPONSES.index("restart")
#: Monotonic clock of the witnesses, seconds; a change of an incident.
Change = tuple[float, dict[str, Any]]


@dataclass
class Block:
    """One block of pauses; its times are seconds from the replay's start. `lags`: how late each signal was sent, seconds."""

    number: int
    pause_s: float
    begin: float
    end: float
    events: list[tuple[float, int, int]]
    lags: list[float] = field(default_factory=list)
    longest: float = 0.0
    not_stopped: int = 0
    load: float = 0.0


def read_blocks(path: Path, wanted: set[int]) -> tuple[int, list[Block]]:
    """Number of members, and the wanted blocks (none named: all) one after another, each with the scenario's time to settle."""
    try:
        scenario = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise SystemExit(f"{path}: cannot be read: {error}") from None
    if scenario.get("schema") != "outrider.pause-scenario.v1":
        raise SystemExit(f"{path}: is no outrider.pause-scenario.v1")
    blocks, at = [], 0.0
    for number, raw in enumerate(scenario["blocks"], 1):
        if wanted and number not in wanted:
            continue
        events = []
        for event in raw["events"]:
            t = at + event["t"] - raw["start_s"]
            events += [(t, signal.SIGSTOP, event["member"]), (t + event["pause_s"], signal.SIGCONT, event["member"])]
        over = max(at + raw["end_s"] - raw["start_s"], max(t for t, _, _ in events)) + scenario["settle_s"]
        blocks.append(Block(number, raw["pause_s"], at, over, sorted(events)))
        at = over
    if not blocks:
        raise SystemExit(f"{path}: has no such block")
    return scenario["members"], blocks


async def replay(stage: Stage, block: Block, began: float) -> None:
    """Sends the block's signals at their times, and waits out its time to settle."""
    stopped: dict[int, float] = {}
    for t, number, member in block.events:
        await asyncio.sleep(max(0.0, began + t - time.monotonic()))
        now = time.monotonic()
        block.lags.append(now - began - t)
        if not stage.send(member, number):
            block.not_stopped += 1
        if number == signal.SIGSTOP:
            stopped[member] = now
        else:
            block.longest = max(block.longest, now - stopped.pop(member))
    block.load = os.getloadavg()[0]
    await asyncio.sleep(max(0.0, began + block.end - time.monotonic()))


def changes(stage: Stage) -> list[Change]:
    """What all leaders decided, from the journals of decisions."""
    found = []
    for path in sorted((stage.folder / "witness").rglob("decisions.jsonl.gz")):
        with gzip.open(path, "rt") as lines:
            for line in map(json.loads, lines):
                if line["type"] == "IncidentChange":
                    found.append((line["t"], line["decision"]))
    return sorted(found, key=lambda one: one[0])


def stalls(stage: Stage, wall_less_monotonic: float) -> list[tuple[float, float]]:
    """(monotonic time, seconds) of the stalls that witnesses told of themselves: those above `witness.stall_seconds`, 0.5 s."""
    found = []
    for line in (stage.folder / "up.log").read_text(errors="replace").splitlines():
        if '"own_stall"' in line:
            told = json.loads(line[line.index("{") :])
            found.append((datetime.fromisoformat(told["timestamp"]).timestamp() - wall_less_monotonic, told["seconds"]))
    return found


def verdicts(block: Block, told: list[Change], began: float) -> tuple[int, dict[str, tuple[int, str]]]:
    """How many incidents were suspected in the block; those confirmed -> (gravest response, as a place in RESPONSES; words)."""
    within = [one for t, one in told if block.begin <= t - began < block.end]
    confirmed: dict[str, tuple[int, str]] = {}
    for one in within:
        if one["event"] == "confirmed":
            words = f"{one['fault']} ({one['response']}) {one['subject']}: {one['explanation']}"
            new = (RESPONSES.index(one["response"]), words)
            confirmed[one["incident"]] = max(new, confirmed.get(one["incident"], new))
    return len({one["incident"] for one in within if one["event"] == "suspected"}), confirmed


def report(blocks: list[Block], told: list[Change], stood: list[tuple[float, float]], began: float, job: bool) -> list[str]:
    """Prints a line a block, and one for the time before the first. Returns the false verdicts that must not be: with a `job`
    that steps, also every restart."""
    wrong: list[str] = []
    before = Block(0, 0.0, float("-inf"), 0.0, [], [0.0])
    print("block  pause s  pauses  longest s  suspected  confirmed watch / above       lag ms p50 / max  worst stall s  load")
    for block in [before, *blocks]:
        suspected, confirmed = verdicts(block, told, began)
        above = Counter(RESPONSES[response] for response, _ in confirmed.values() if response > 1)
        words = f"{len(confirmed) - above.total()} / {', '.join(f'{n} {name}' for name, n in above.items()) or '0'}"
        lags = [lag * 1e3 for lag in sorted(block.lags)]
        stall = max((seconds for t, seconds in stood if block.begin <= t - began < block.end), default=0.0)
        print(
            f"{block.number or 'start':>5}  {block.pause_s:7g}  {len(block.events) // 2:6}  {block.longest:9.2f}  {suspected:9}"
            f"  {words:27}  {lags[len(lags) // 2]:6.1f} / {lags[-1]:6.1f}  {f'{stall:.2f}' if stall else 'below 0.5':>13}"
            f"  {block.load:4.1f}"
        )
        borne = 1 if block.pause_s <= BORNE_SECONDS else RESTART - 1 if job else RESTART
        wrong += [f"{incident}: {text}" for incident, (response, text) in confirmed.items() if response > borne]
    return wrong


def machine(network: str) -> str:
    """What this was measured on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "?")
    return f"{platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} CPUs ({model}); {network}"


def own_network() -> str:
    """Moves to a network of this process's own where that is allowed, so that no port is anybody else's. Returns words for it."""
    try:
        unshare_network()
    except OSError as error:
        return f"the machine's loopback ({error.strerror})"
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True, timeout=10)
    return "a network namespace of its own"


async def measure(folder: Path, members: int, witnesses: int, job: bool, blocks: list[Block]) -> list[str]:
    """Starts all, replays the blocks, ends all and reports. Returns the false verdicts. Raises DrillError: the figures are void."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    began, offset = float("inf"), time.time() - time.monotonic()
    async with Stage(folder, members, witnesses, job) as stage:
        await asyncio.sleep(QUIET_SECONDS)
        before, stepped, began = stage.status(), stage.steps(), time.monotonic()
        print(f"{members} agents and {witnesses} witnesses are up; {blocks[-1].end:.0f} s to go", flush=True)
        for block in blocks:
            await replay(stage, block, began)
        after, stepped, took = stage.status(), stage.steps() - stepped, time.monotonic() - began
        lost = [f"n{member}" for member, agent in stage.agents.items() if agent.returncode is not None]
        lost += [f"rank {rank}" for rank, one in enumerate(stage.ranks) if one.returncode is not None]
    beats = (after["heartbeats"] - before["heartbeats"]) / took
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{beats:.1f} heartbeats a second at {after['witness']}; all processes used {used.ru_utime + used.ru_stime:.0f} s of CPU")
    if job:
        print(f"the job beside did {stepped} steps, one each {took / max(1, stepped):.2f} s")
    wrong = report(blocks, changes(stage), stalls(stage, offset), began, job)
    not_stopped = sum(block.not_stopped for block in blocks)
    slow = job and stepped < took / PACE_SECONDS / 2
    if lost or slow or not_stopped or beats < members / 2 or before["witness"] != after["witness"]:
        raise DrillError(
            f"void: ended {lost}, job slow or standing {slow}, pauses that were none {not_stopped}, heartbeats a second {beats:.1f}"
        )
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", type=Path)
    numbers = "numbers of blocks, from 1, with commas between; default: all"
    parser.add_argument("--blocks", default=set(), type=lambda text: set(map(int, text.split(","))), metavar="N,..", help=numbers)
    parser.add_argument("--witnesses", type=int, default=3, choices=(3, 5))
    parser.add_argument("--job", action="store_true", help="let a training job run beside, one rank a member")
    parser.add_argument("--out", type=Path, help="folder for logs and journals")
    chosen = parser.parse_args()
    members, blocks = read_blocks(chosen.scenario, chosen.blocks)
    folder = chosen.out or Path(tempfile.mkdtemp(prefix="outrider-pauses-"))
    folder.mkdir(parents=True, exist_ok=True)
    print(machine(own_network()), flush=True)
    keep = chosen.out is not None
    try:
        wrong = asyncio.run(measure(folder.resolve(), members, chosen.witnesses, chosen.job, blocks))
        keep = keep or bool(wrong)
        for line in wrong:
            print(f"false: {line}")
        print(
            f"{len(wrong)} false verdicts above watch for pauses up to {BORNE_SECONDS:g} s"
            + (f"; journals and logs are in {folder}" if keep else "")
        )
        return int(bool(wrong))
    except DrillError as error:
        keep = True
        print(f"pause_real: {error}; logs are in {folder}", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 130
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    raise SystemExit(main())
