"""The bodies of webhooks, typed: the published contract. `docs/webhooks.schema.json` is made from these, and a test holds it so.

A receiver must bear fields that it does not know; fields are only ever added.
"""

from typing import Annotated, Any, Final, Literal

import msgspec

WebhookType = Literal[
    "incident.confirmed", "incident.resolved", "job.snapshot.requested", "node.drain.requested", "node.quarantine.requested",
    "node.release.requested", "job.restart.requested", "agent.restart.requested", "test",
]  # fmt: skip


class Replace(msgspec.Struct, frozen=True, kw_only=True, rename={"from_": "from"}):
    """One slot's change of node. `to` is null where no spare was free: the scheduler may choose one."""

    slot: Annotated[int, msgspec.Meta(ge=0)]
    from_: str
    to: str | None = None


class Resume(msgspec.Struct, frozen=True, kw_only=True):
    """Where the next attempt goes on. `rule`: `newest` complete snapshot, or `last_good` where the newest state is poisoned."""

    step: int | None = None
    manifest: str | None = None
    rule: str = "newest"


class Data(msgspec.Struct, frozen=True, kw_only=True):
    """What the webhook is about.

    `incident`, `fault`, `culprit`, `subject`, `response`, `repair`, `explanation`: the incident in short. `node`, `job`, `attempt`:
    what is to be touched; `attempt` is the one to be ended. `replace`: slots that change their node; ranks stay with their slots.
    `slots`: the rank map of the next attempt, the node of each slot in rank order (null: the scheduler chooses); empty: unknown.
    `fence` only grows: a receiver drops what is older than the highest it has seen for that job or node. `dry_run`: change nothing.
    """

    fence: Annotated[int, msgspec.Meta(ge=0)]
    dry_run: bool = False
    incident: str | None = None
    fault: str | None = None
    culprit: str | None = None
    subject: dict[str, Any] = {}
    response: str | None = None
    repair: str | None = None
    explanation: str | None = None
    reason: str | None = None
    node: str | None = None
    job: str | None = None
    attempt: int | None = None
    ranks: tuple[int, ...] | None = None
    replace: tuple[Replace, ...] = ()
    slots: tuple[str | None, ...] = ()
    resume: Resume | None = None


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One webhook. `timestamp`: when it was decided, RFC 3339, for people."""

    type: WebhookType
    timestamp: str
    data: Data


_decoder = msgspec.json.Decoder(Message)

#: Where the schema says it lives.
SCHEMA_ID: Final = "outrider/webhooks.schema.json"


def read_message(body: str | bytes) -> Message:
    """The typed form of a body.

    Raises:
        msgspec.MsgspecError: it is none.
    """
    return _decoder.decode(body)


def schema() -> dict[str, Any]:
    """The JSON schema of a body (draft 2020-12)."""
    made = msgspec.json.schema(Message)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA_ID, "title": "Outrider webhook", **made}


def schema_text() -> str:
    """The schema as the published file has it."""
    return msgspec.json.format(msgspec.json.encode(schema(), order="sorted"), indent=2).decode() + "\n"
