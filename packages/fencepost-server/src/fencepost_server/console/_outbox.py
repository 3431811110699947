"""The outbox: channels, blocked keys, messages, and an operator's decisions about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from fastapi import Path, Query, Request
from pydantic import BaseModel, Field

from fencepost.errors import InvalidInput, NotFound
from fencepost.kernel import outbox as kernel_outbox
from fencepost_server.console._jobs import life
from fencepost_server.console.bulk_actions import Act, BulkActions, Choice, add_bulk_actions
from fencepost_server.console.context import ConsoleContext, Name, Paged, wanted
from fencepost_server.console.listing import Listing
from fencepost_server.console.page_data import ActionDone, PageData
from fencepost_server.console.router import visitor_of
from fencepost_server.web.questions import Confirmation, counted
from fencepost_server.web.words import say

MessageId = Annotated[int, Path(ge=1, le=9_223_372_036_854_775_807)]
_MESSAGES = Listing(
    table="messages",
    sql="select id, channel, key, state, ready, created_at, not_before, attempts, owner, settled_at,"
    " left(last_error, 300) as last_error"
    " from fencepost.outbox_messages where id = any (%(ids)s) order by id desc",
    key=("id",),
    positions=("before",),
    is_descending=True,
    columns={
        "id": "bigint",
        "state": "text",
        "channel": "text",
        "key": "text",
        "attempts": "bigint",
        "created_at": "timestamptz",
        "settled_at": "timestamptz",
        "last_error": "text",
    },
    searched=("channel", "key", "last_error"),
)
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


def _add_bulk_actions(context: ConsoleContext) -> None:
    """The key of a row is its id and the state that was seen, which guards the decision: `17:parked`."""

    def parts(key: str) -> tuple[int, str]:
        number, _, seen = key.partition(":")
        if not (number.isdecimal() and len(number) < 19):
            raise InvalidInput(say("{key} is no message; write ID:STATE.", key=f"{key!r}"), field="ids")
        return int(number), seen

    async def states(_: Request, keys: Sequence[str]) -> Mapping[str, str]:
        seen = {parts(key)[0]: key for key in keys}
        rows = await context.reading.rows(
            "select id, state from fencepost.outbox_messages where id = any (%s)", list(seen)
        )
        return {seen[row["id"]]: row["state"] for row in rows}

    def each(outcome: kernel_outbox.Outcome) -> Act:
        async def act(key: str, request: Request, reason: str) -> None:
            message_id, expected = parts(key)
            actor = visitor_of(request).actor
            await context.fp.run(kernel_outbox.resolve(message_id, expected, outcome, actor, reason))

        return act

    fits = ("queued", "failed", "unknown", "parked")
    choices = {
        "sent": Choice(
            verb="Mark as sent",
            done="marked as sent",
            consequence="They count as delivered and are not sent again.",
            act=each("sent"),
            fits=fits,
        ),
        "dead": Choice(
            verb="Give up",
            done="given up",
            consequence="They are not sent again.",
            act=each("dead"),
            fits=fits,
        ),
        "queued": Choice(
            verb="Send again",
            done="queued again",
            consequence="They are sent again. What the other side has already, it gets twice under one key.",
            act=each("queued"),
            fits=fits,
        ),
    }
    actions = BulkActions(
        table="messages",
        action="outbox.settle",
        one="message",
        many="messages",
        back="/console/outbox",
        choices=choices,
        states=states,
        reason=True,
    )
    add_bulk_actions(context, actions)


def add_pages(context: ConsoleContext) -> None:
    @context.router.page("/outbox", "outbox.html", "Outbox")
    async def outbox(request: Request, query: Annotated[MessageQuery, Query()]) -> PageData:
        """Lag by channel, blocked keys, and the messages, newest first."""
        seen = await context.live_snapshot.newest()

        async def ids(before: int | None, limit: int) -> tuple[list[int], int | None]:
            return await context.reading.page(
                "select ids, next_before from fencepost.console_outbox_page(%s::text, %s::text, %s::text,"
                " %s::bigint, %s::integer, %s::integer)",
                wanted(query.channel),
                wanted(query.state),
                wanted(query.key),
                before,
                limit,
                context.settings.scan_max,
            )

        page = await context.lists.read(_MESSAGES, query, query.limit, ids=ids)
        return PageData(
            {
                "channels": seen.channels,
                "held_keys": seen.held_keys,
                "messages": page.rows,
                **page.next,
                "filters": query.filters(),
                "states": STATES,
            },
            "messages",
            ("channels", "held_keys"),
            {"messages": page.state},
        )

    @context.router.page("/outbox/{message_id}", "message.html", "Message")
    async def message(request: Request, message_id: MessageId) -> PageData:
        """One message: payload, result, and its history."""
        row = await context.reading.row("select * from fencepost.outbox_messages where id = %s", message_id)
        if row is None:
            raise NotFound(
                say(
                    "There is no message {message_id}: it never existed, or it was pruned.",
                    message_id=message_id,
                )
            )
        moments = await life(context, f"outbox:{message_id}")
        return PageData(
            {"title": say("Message {message_id}", message_id=message_id), "message": row, "life": moments},
            rows="life",
        )

    _add_bulk_actions(context)

    async def before_resolve(request: Request, message_id: int, body: Resolve) -> Confirmation:
        row = await context.reading.row(
            "select channel, key, state, attempts from fencepost.outbox_messages where id = %s", message_id
        )
        if row is None:
            raise NotFound(
                say(
                    "There is no message {message_id}: it never existed, or it was pruned.",
                    message_id=message_id,
                )
            )
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
        onward = say(
            "{waiting} of the key {key} can go out behind it.",
            waiting=counted(waiting, "message"),
            key=row["key"],
        )
        return Confirmation(
            say(
                "Message {message_id}, {state}, becomes {outcome}?",
                message_id=message_id,
                state=row["state"],
                outcome=body.outcome,
            ),
            [
                say(
                    "Channel {channel}, {attempts}, {state}.",
                    channel=row["channel"],
                    attempts=counted(row["attempts"], "attempt"),
                    state=row["state"],
                ),
                ends[body.outcome],
                *([onward] if waiting else []),
                say("Because: {note}", note=body.note),
            ],
            say("Make it {outcome}", outcome=body.outcome),
            f"/console/outbox/{message_id}",
        )

    @context.router.action("/outbox/{message_id}/resolve", "outbox.resolve", asks=before_resolve)
    async def resolve(request: Request, message_id: MessageId, body: Resolve) -> ActionDone:
        """Decide about a message that waits for an operator."""
        actor = visitor_of(request).actor
        await context.fp.run(kernel_outbox.resolve(message_id, body.expected, body.outcome, actor, body.note))
        context.live_snapshot.forget()
        return ActionDone(
            say("Message {message_id} is {outcome}.", message_id=message_id, outcome=body.outcome),
            f"/console/outbox/{message_id}",
        )
