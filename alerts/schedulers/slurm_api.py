"""What Slurm can be asked and told: by slurmrestd with a JWT, and by `scontrol --json` for what that lacks or where it is absent.

Source: Slurm REST API reference v0.0.38 and later; scontrol(1). slurmrestd 22.05 (v0.0.38) has no node update, no requeue, and no
excluded nodes: those go to scontrol. Errors may come with HTTP 200: `errors` is read.
"""

import asyncio
import json
import re
from typing import Any, Protocol

import aiohttp

from alerts.schedulers.port import SchedulerError
from alerts.schedulers.slurm_reading import SlurmJob, SlurmNode, failure, only, read_job, read_lines, read_node, records
from alerts.secret_files import read_token
from alerts.senders import make_session, whole_text
from outrider.config.targets import SlurmTarget


class SlurmApi(Protocol):
    """Reads and orders. All raise SchedulerError."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def nodes(self) -> list[SlurmNode]: ...

    async def node(self, name: str) -> SlurmNode: ...

    async def job(self, job_id: int) -> SlurmJob: ...

    async def jobs(self) -> list[SlurmJob]: ...

    async def update(self, *words: str) -> None:
        """`scontrol update` with words like `NodeName=n1`."""
        ...

    async def command(self, *words: str) -> None:
        """Another scontrol command (`requeuehold`, `hold`, `release`)."""
        ...


class ScontrolApi:
    """Everything by `scontrol`."""

    def __init__(self, target: SlurmTarget) -> None:
        self._program, self._seconds = target.scontrol, target.timeout_seconds
        self._json = True

    async def open(self) -> None:
        """Nothing is kept open."""

    async def close(self) -> None:
        """See `open`."""

    async def nodes(self) -> list[SlurmNode]:
        return [read_node(found) for found in await self._show("node", "nodes")]

    async def node(self, name: str) -> SlurmNode:
        found = [read_node(one) for one in await self._show("node", "nodes", name)]
        return only(found, f"no node is called {name}", "no_such_node")

    async def job(self, job_id: int) -> SlurmJob:
        found = [read_job(one) for one in await self._show("job", "jobs", str(job_id))]
        return only(found, f"there is no job {job_id}", "no_such_job")

    async def jobs(self) -> list[SlurmJob]:
        return [read_job(found) for found in await self._show("job", "jobs")]

    async def update(self, *words: str) -> None:
        await self._run("update", *words)

    async def command(self, *words: str) -> None:
        await self._run(*words)

    async def _show(self, what: str, key: str, *names: str) -> list[dict[str, Any]]:
        if self._json:
            try:
                return records(await self._run("--json", "show", what, *names), key, "scontrol")
            except SchedulerError as error:
                if "unrecognized option" not in error.reason:
                    raise
                self._json = False  # built without JSON: its lines say the same
        return read_lines(await self._run("--oneliner", "show", what, *names))

    async def _run(self, *words: str) -> str:
        """Runs it within the time-out; a controller that is down makes scontrol wait far longer."""
        if not self._program:
            raise SchedulerError(f"the REST server cannot do {words[0]!r}, and scontrol is not set", "not_supported", again=False)
        try:
            process = await asyncio.create_subprocess_exec(
                self._program,
                *words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            raise SchedulerError(f"{self._program}: {error.strerror}", "unreachable", again=True) from None
        try:
            async with asyncio.timeout(self._seconds):
                output, errors = await process.communicate()
        except TimeoutError:
            process.kill()
            await process.wait()
            raise SchedulerError(f"scontrol gave no answer within {self._seconds:g} s", "unreachable", again=True) from None
        if process.returncode != 0:
            raise failure(errors.decode("utf-8", "replace") or output.decode("utf-8", "replace"))
        return output.decode("utf-8", "replace")


class RestApi(ScontrolApi):
    """Reads by slurmrestd; orders by scontrol, for no version of the REST server can do all of them alike."""

    def __init__(self, target: SlurmTarget) -> None:
        super().__init__(target)
        self._url, self._user, self._token_file = target.url.rstrip("/"), target.user, target.token_file
        self._session: aiohttp.ClientSession | None = None
        self._version = ""

    async def open(self) -> None:
        self._session = make_session()

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def node(self, name: str) -> SlurmNode:
        found = [node for node in await self.nodes() if node.name == name]
        return only(found, f"no node is called {name}", "no_such_node")

    async def _show(self, what: str, key: str, *names: str) -> list[dict[str, Any]]:
        version = await self._discover()
        path = f"{what}/{names[0]}" if names else f"{what}s"
        return records(await self._get(f"/slurm/{version}/{path}"), key, "slurmrestd")

    async def _discover(self) -> str:
        """The newest version that the server offers, from its own description."""
        if not self._version:
            try:
                paths = json.loads(await self._get("/openapi/v3"))["paths"]
            except (ValueError, KeyError, TypeError, RecursionError):
                raise SchedulerError("slurmrestd does not describe itself", "strange_answer", again=True) from None
            versions = {found[1] for path in paths if (found := re.match(r"/slurm/(v\d+\.\d+\.\d+)/nodes", path))}
            if not versions:
                raise SchedulerError("slurmrestd offers no version of the API", "not_supported", again=False)
            self._version = max(versions, key=lambda word: [int(part) for part in word[1:].split(".")])
        return self._version

    async def _get(self, path: str) -> str:
        assert self._session is not None
        headers = {"X-SLURM-USER-NAME": self._user}
        if self._token_file:
            headers["X-SLURM-USER-TOKEN"] = read_token(self._token_file)
        timeout = aiohttp.ClientTimeout(total=self._seconds)
        try:
            async with self._session.get(self._url + path, headers=headers, timeout=timeout, allow_redirects=False) as answer:
                text = await whole_text(answer)
                status = answer.status
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise SchedulerError(
                f"slurmrestd cannot be reached: {error or 'no answer in time'}", "unreachable", again=True
            ) from None
        if status in (401, 403) or "authentication" in text.lower()[:300]:
            raise SchedulerError(f"slurmrestd refuses the token ({status})", "unauthorised", again=True)
        if status != 200 and not text.lstrip().startswith("{"):
            raise SchedulerError(f"slurmrestd: {status} {text[:200].strip()}", "strange_answer", again=status >= 500)
        return text


def make_api(target: SlurmTarget) -> SlurmApi:
    """REST where an address is set, scontrol elsewhere."""
    return RestApi(target) if target.url else ScontrolApi(target)
