"""Starts ranks of the drill's job. Run as a program it is their parent: it takes orders on standard input, answers on output."""

import json
import os
import socket
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

WORLD = 4
STEPS = 30


class Stage:
    """The test's end."""

    def __init__(self) -> None:
        repository = Path(__file__).parent.parent.parent
        self._parent = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=repository, bufsize=1
        )
        self._pids: list[int] = []

    def start(self, folder: Path, *, attempt: int = 1, fence: int = 0, agent: str = "", **env: Any) -> list[int]:
        """Forks all ranks of an attempt; records and snapshots go into `folder`. Returns their process ids, by rank."""
        common = {
            "WORLD_SIZE": WORLD, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": _free_port(), "DRILL_STEPS": STEPS, "DRILL_SEED": 5,
            "DRILL_OUT": folder / "records", "DRILL_SAVE_EVERY": 0, "OUTRIDER_JOB": "j", "OUTRIDER_ATTEMPT": attempt,
            "OUTRIDER_FENCE": fence, "OUTRIDER_SNAPSHOTS": folder / "snapshots", "OUTRIDER_AGENT": agent, "LOG": folder / "log",
        } | env  # fmt: skip
        ranks = [common | {"RANK": rank, "DRILL_ADDRESS": f"127.0.0.{rank + 2}"} for rank in range(WORLD)]
        pids: list[int] = self._ask({"start": [{key: str(value) for key, value in rank.items()} for rank in ranks]})
        self._pids += pids
        return pids

    def wait(self, pids: list[int]) -> list[int]:
        """Waits for processes to end. Returns their exit codes."""
        codes: list[int] = self._ask({"wait": pids})
        self._pids = [pid for pid in self._pids if pid not in pids]
        return codes

    def close(self) -> None:
        """Ends what is left."""
        self._ask({"end": self._pids})
        self._parent.communicate(timeout=20)

    def _ask(self, order: dict[str, Any]) -> Any:
        assert self._parent.stdin is not None and self._parent.stdout is not None
        self._parent.stdin.write(json.dumps(order) + "\n")
        return json.loads(self._parent.stdout.readline())

    @staticmethod
    def facts(folder: Path) -> dict[tuple[int, int | str], Any]:
        """(rank, step) -> loss, norm and samples, of the newest attempt that made it; (rank, "digest") -> at the end."""
        found: dict[tuple[int, int | str], Any] = {}
        for path in sorted((folder / "records").iterdir(), key=lambda path: path.name.partition("attempt-")[2]):
            rank = int(path.name.split(".")[0].removeprefix("rank-"))
            for line in path.read_text().splitlines():
                entry = json.loads(line)
                if "loss" in entry:
                    found[rank, entry["step"]] = (entry["loss"], entry["grad_norm"], entry["samples"])
                elif entry["event"] == "end":
                    found[rank, "digest"] = entry["digest"]
        return found

    @staticmethod
    def steps(folder: Path, attempt: int) -> list[set[int]]:
        """The steps that each rank finished in one attempt."""
        texts = [(folder / f"records/rank-{rank}.attempt-{attempt}.jsonl").read_text() for rank in range(WORLD)]
        entries = [[json.loads(line) for line in text.splitlines()] for text in texts]
        return [{entry["step"] for entry in one if "loss" in entry} for one in entries]


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _serve() -> None:
    from drills.job import preload

    preload()
    for line in sys.stdin:
        order = json.loads(line)
        if "start" in order:
            answer = [_fork(env) for env in order["start"]]
        elif "wait" in order:
            answer = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in order["wait"]]
        else:
            for pid in order["end"]:
                os.kill(pid, 9)
            answer = []
        print(json.dumps(answer), flush=True)


def _fork(env: dict[str, str]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.nice(5)
        log = os.open(env["LOG"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ.update(env)
        from drills.job import train

        code = train.main(os.environ)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    sys.path.insert(0, os.getcwd())
    _serve()
