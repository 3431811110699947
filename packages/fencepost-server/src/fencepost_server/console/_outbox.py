"""The outbox: channels, blocked keys, messages, and an operator's decisions about them."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Path, Query, Request
from pydantic import BaseModel, Field

from fencepost.errors import NotFound
from fencepost.kernel import outbox as kernel_outbox
from fencepost_server.console._jobs import life
from fencepost_server.console.context import ConsoleContext, Name, Paged, wanted
from fencepost_server.console.page_data import ActionDone, PageData
from fencepost_server.console.router import visitor_of
from fencepost_server.web.questions import Confirmation, counted

MessageId = Annotated[int, Path(ge=1, le=9_223_372_036_854_775_807)]
STATES = ("queued", "sending", "failed", "unknown", "parked", "sent", "dead")


class MessageQuery(Paged):
    channel: Name | None = None
    state: Literal["", "queued", "sending", "failed", "unknown", "parked", "sent", "dead"] | None = None
    key: Name | None = None


class Resolve(BaseModel):
    """A decision about a message, guarded by the state that was seen."""

    model_config = {"extra": "forbid"}

    expected: Literal["queued", "failed", "unknown", "parked"]
    outcome: Literal["sent", "dead", "queued"]
    note: Annotated[str, Field(min_length=1, max_length=1000, pattern=r"^[^\x00]+$")]


def add_pages(context: ConsoleContext) -> None:
    @context.router.page("/outbox", "outbox.html", "Outbox")
    async def outbox(request: Request, query: Annotated[MessageQuery, Query()]) -> PageData:
        """Lag by channel, blocked keys, and the messages, newest first."""
        seen = await context.live_snapshot.newest()
        ids, next_before = await context.reading.page(
            "select ids, next_before from fencepost.console_outbox_page(%s::text, %s::text, %s::text,"
            " %s::bigint, %s::integer, %s::integer)",
            wanted(query.channel),
            wanted(query.state),
            wanted(query.key),
            query.before,
            query.limit,
            context.settings.scan_max,
        )
        rows = await context.reading.rows(
            "select id, channel, key, state, ready, created_at, not_before, attempts, owner, settled_at,"
            " left(last_error, 300) as last_error"
            " from fencepost.outbox_messages where id = any (%s) order by id desc",
            ids,
        )
        return PageData(
            {
                "channels": seen.channels,
                "held_keys": seen.held_keys,
                "messages": rows,
                "next_before": next_before,
                "filters": query.filters(),
                "states": STATES,
            },
            "messages",
            ("channels", "held_keys"),
        )

    @context.router.page("/outbox/{message_id}", "message.html", "Message")
    async def message(request: Request, message_id: MessageId) -> PageData:
        """One message: payload, result, and its history."""
        row = await context.reading.row("select * from fencepost.outbox_messages where id = %s", message_id)
        if row is None:
            raise NotFound(f"There is no message {message_id}: it never existed, or it was pruned.")
        moments = await life(context, f"outbox:{message_id}")
        return PageData({"title": f"Message {message_id}", "message": row, "life": moments}, rows="life")

    async def before_resolve(request: Request, message_id: int, body: Resolve) -> Confirmation:
        row = await context.reading.row(
            "select channel, key, state, attempts from fencepost.outbox_messages where id = %s", message_id
        )
        if row is None:
            raise NotFound(f"There is no message {message_id}: it never existed, or it was pruned.")
        behind = await context.reading.row(
            "select count(*) as waiting from (select 1 from fencepost.outbox_messages"
            " where channel = %s and key = %s and id > %s and settled_at is null limit 1000) b",
            row["channel"],
            row["key"],
            message_id,
        )
        waiting = behind["waiting"] if behind is not None else 0
        ends = {
            "sent": "It counts as delivered and is not sent again.",
            "dead": "It is given up: it is not sent again.",
            "queued": "It is sent again. If the other side has it already, it gets it twice under one key.",
        }
        onward = f"{counted(waiting, 'message')} of the key {row['key']} can go out behind it."
        return Confirmation(
            f"Message {message_id}, {row['state']}, becomes {body.outcome}?",
            [
                f"Channel {row['channel']}, {counted(row['attempts'], 'attempt')}, {row['state']}.",
                ends[body.outcome],
                *([onward] if waiting else []),
                f"Because: {body.note}",
            ],
            f"Make it {body.outcome}",
            f"/console/outbox/{message_id}",
        )

    @context.router.action("/outbox/{message_id}/resolve", "outbox.resolve", asks=before_resolve)
    async def resolve(request: Request, message_id: MessageId, body: Resolve) -> ActionDone:
        """Decide about a message that waits for an operator."""
        actor = visitor_of(request).actor
        await context.fp.run(kernel_outbox.resolve(message_id, body.expected, body.outcome, actor, body.note))
        context.live_snapshot.forget()
        return ActionDone(f"Message {message_id} is {body.outcome}.", f"/console/outbox/{message_id}")
