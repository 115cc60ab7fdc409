"""A command of the site's as a target: for what no other target does, such as restarting an agent that hangs."""

from alerts.bodies import read_message
from alerts.delivery import Attempt
from alerts.run_command import filled, run_command, unsafe
from detectors.witness.outbox import OutboxRow
from outrider.config.targets import CommandTarget
from outrider.wire import UNREADABLE

#: Exit status of a failure that may pass (EX_TEMPFAIL of sysexits.h).
TRY_AGAIN = 75


class CommandSender:
    """One command."""

    def __init__(self, target: CommandTarget) -> None:
        self.name, self.types, self.attempts_max = target.name, target.types, target.attempts_max
        self._target = target

    async def open(self) -> None:
        """Nothing is kept open."""

    async def close(self) -> None:
        """See `open`."""

    async def send(self, row: OutboxRow, now_wall: float) -> Attempt:
        try:
            data = read_message(row.body).data
        except UNREADABLE as error:
            return Attempt(outcome="refused", reason=f"the body is no order: {error}", reason_code="strange_order")
        names = ("node", "job", "attempt", "fence", "incident", "fault")
        values = {name: getattr(data, name) if getattr(data, name) is not None else "" for name in names}
        if (why := unsafe(self._target.command, values)) is not None:
            return Attempt(outcome="refused", reason=why, reason_code="unsafe_name")
        ended = await run_command(filled(self._target.command, values | {"id": row.id}), self._target.timeout_seconds, row.body)
        if ended.status == 0:
            return Attempt(outcome="accepted", reason=ended.said or "done", reason_code="accepted")
        again = ended.status in (None, TRY_AGAIN)
        return Attempt(outcome="retry" if again else "refused", reason=ended.why or "", reason_code="command_failed")
