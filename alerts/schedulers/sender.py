"""A scheduler as a target of the deliverer: a row becomes a call, an outcome an attempt. A spare is checked before its use."""

import asyncio

from alerts.bodies import Data, Message, read_message
from alerts.delivery import Attempt
from alerts.run_command import filled, run_command, unsafe
from alerts.schedulers.port import Scheduler, SchedulerError, carry_out
from detectors.witness.outbox import OutboxRow
from outrider.config.alerts import SpareCheck
from outrider.errors import InputError
from outrider.wire import UNREADABLE

TYPES = ("node.quarantine.requested", "node.drain.requested", "node.release.requested", "job.restart.requested")


class SchedulerSender:
    """One scheduler behind the deliverer."""

    def __init__(self, scheduler: Scheduler, types: tuple[str, ...], attempts_max: int, check: SpareCheck) -> None:
        self.name, self.types, self.attempts_max = scheduler.name, types or TYPES, attempts_max
        self._scheduler, self._check = scheduler, check

    async def open(self) -> None:
        await self._scheduler.open()

    async def close(self) -> None:
        await self._scheduler.close()

    async def send(self, row: OutboxRow, now_wall: float) -> Attempt:
        try:
            message = read_message(row.body)
        except UNREADABLE as error:
            return Attempt(outcome="refused", reason=f"the body is no order: {error}", reason_code="strange_order")
        try:
            if message.type == "job.restart.requested":
                await self._check_spares(message)
            done = await carry_out(self._scheduler, message)
        except SchedulerError as error:
            return Attempt(
                outcome="retry" if error.again else "refused", reason=error.reason, reason_code=error.code,
                retry_seconds=error.wait, detail={"reason_code": error.code},
            )  # fmt: skip
        except InputError as error:  # a token's file: a person mends it
            return Attempt(outcome="retry", reason=str(error), reason_code="unauthorised")
        return Attempt(outcome="accepted", reason=done.note, reason_code=done.status, detail={"result": done.status, **done.detail})

    async def _check_spares(self, message: Message) -> None:
        """Runs the site's check on each spare that the restart would use.

        Raises:
            SchedulerError: a spare is not fit; the row becomes a dead letter and the council hears that the restart failed.
        """
        if not self._check.command:
            return
        if (why := unsafe(self._check.command, {"job": message.data.job or ""})) is not None:
            raise SchedulerError(why, "unsafe_name", again=False)  # the spare is not to blame
        spares = sorted({item.to for item in message.data.replace if item.to})
        results = await asyncio.gather(*(check_spare(self._check, node, message.data) for node in spares))
        bad = [f"{node}: {why}" for node, why in zip(spares, results, strict=True) if why is not None]
        if bad:
            raise SchedulerError(f"spare not fit: {'; '.join(bad)}", "spare_unfit", again=False)


async def check_spare(check: SpareCheck, node: str, order: Data) -> str | None:
    """Why a spare is not fit; None: it is."""
    ended = await run_command(filled(check.command, {"node": node, "job": order.job or ""}), check.timeout_seconds)
    return None if ended.why is None else f"its check {ended.why}"
