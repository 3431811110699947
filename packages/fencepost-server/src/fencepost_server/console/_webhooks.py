"""Webhooks: where messages are delivered to, their topics and secrets, and what was not delivered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from fastapi import Path, Query, Request
from pydantic import BaseModel, BeforeValidator, Field

from fencepost.errors import NotFound
from fencepost.outbox.settings import OutboxSettings
from fencepost.webhooks import calls
from fencepost.webhooks.addresses import checked_url
from fencepost_server.console._role import Role
from fencepost_server.console.bulk_actions import BulkActions, Choice, add_bulk_actions
from fencepost_server.console.context import ConsoleContext, Limit, Name
from fencepost_server.console.listing import Listing, ListQuery
from fencepost_server.console.page_data import ActionDone, PageData
from fencepost_server.console.router import visitor_of
from fencepost_server.web.formatting import span
from fencepost_server.web.questions import Confirmation, counted
from fencepost_server.web.words import say

PAGE = "/console/webhooks"
DAY_SECONDS = 86_400.0
_NAME = r"^[A-Za-z0-9][A-Za-z0-9._\-]*$"
_WEBHOOKS = Listing(
    table="webhooks",
    sql="select name, host, topics, paused_at, made_at, made_by, secrets, rotation_ends_at, dead"
    " from fencepost.webhooks where name > coalesce(%(after)s::text, '') order by name limit %(limit)s",
    key=("name",),
    positions=("after",),
    is_descending=False,
    columns={
        "name": "text",
        "host": "text",
        "made_at": "timestamptz",
        "secrets": "bigint",
        "rotation_ends_at": "timestamptz",
        "dead": "bigint",
        "paused_at": "timestamptz",
    },
    searched=("name", "host", "topics::text"),
)
WebhookName = Annotated[str, Path(min_length=1, max_length=64, pattern=_NAME)]
MessageId = Annotated[int, Path(ge=1, le=9_223_372_036_854_775_807)]
# A URL may hold a key: the audit does not get it.
Url = Annotated[str | None, Field(min_length=1, max_length=2048, pattern=r"^[^\x00-\x20]+$", exclude=True)]


def _words(value: object) -> object:
    """A form sends the topics as one text, with commas between them."""
    return [word.strip() for word in value.split(",") if word.strip()] if isinstance(value, str) else value


Topics = Annotated[
    list[Annotated[str, Field(max_length=64, pattern=r"^[^\x00]+$")]],
    BeforeValidator(_words),
    Field(max_length=16),
]


class WebhooksQuery(ListQuery):
    after: Name | None = None
    limit: Limit = 50


class NewWebhook(BaseModel):
    model_config = {"extra": "forbid", "hide_input_in_errors": True}

    name: Annotated[str, Field(min_length=1, max_length=64, pattern=_NAME)]
    url: Url = None
    topics: Topics = Field(default_factory=list[str])


class ChangeWebhook(BaseModel):
    model_config = {"extra": "forbid", "hide_input_in_errors": True}

    url: Url = None
    topics: Topics | None = None


class Rotate(BaseModel):
    model_config = {"extra": "forbid"}

    overlap_seconds: Annotated[float, Field(ge=0, le=90 * DAY_SECONDS)] = DAY_SECONDS


def add_pages(context: ConsoleContext) -> None:
    @context.router.page("/webhooks", "webhooks.html", "Webhooks")
    async def webhooks(request: Request, query: Annotated[WebhooksQuery, Query()]) -> PageData:
        """The webhooks in order of name: the host of each, never its whole URL or a secret."""
        page = await context.lists.read(_WEBHOOKS, query, query.limit)
        facts = {
            "webhooks": page.rows,
            **page.next,
            "filters": {
                "part": query.part or None,
                "limit": query.limit if query.limit != 50 else None,
            },
        }
        return PageData(facts, "webhooks", lists={"webhooks": page.state})


def _add_bulk_actions(context: ConsoleContext) -> None:
    async def states(_: Request, names: Sequence[str]) -> Mapping[str, str]:
        rows = await context.reading.rows(
            "select name, paused_at is not null as paused from fencepost.webhooks where name = any (%s)",
            list(names),
        )
        return {row["name"]: "paused" if row["paused"] else "open" for row in rows}

    async def pause(name: str, request: Request, _: str) -> None:
        await context.fp.run(calls.pause(name, visitor_of(request).actor))

    async def resume(name: str, request: Request, _: str) -> None:
        await context.fp.run(calls.pause(name, visitor_of(request).actor, is_paused=False))

    choices = {
        "pause": Choice(
            verb="Pause",
            done="paused",
            consequence="Nothing is delivered to them until they are resumed. Messages are kept.",
            act=pause,
            fits=("open",),
        ),
        "resume": Choice(
            verb="Resume",
            done="resumed",
            consequence="They get what waits, from the first message on.",
            act=resume,
            fits=("paused",),
        ),
    }
    actions = BulkActions(
        table="webhooks",
        action="webhook.settle",
        one="webhook",
        many="webhooks",
        back=PAGE,
        choices=choices,
        states=states,
    )
    add_bulk_actions(context, actions)


def add_actions(context: ConsoleContext) -> None:
    _add_bulk_actions(context)

    def checked(url: str | None) -> str | None:
        return None if url is None else checked_url(url, loopback=OutboxSettings.load().webhook_loopback)

    async def before_rotate(request: Request, name: str, body: Rotate) -> Confirmation:
        host = await _host(name)
        overlap = say(
            "The old secret signs too for {overlap_seconds}, and not after.",
            overlap_seconds=span(body.overlap_seconds),
        )
        return Confirmation(
            say("Make a new secret for {name}?", name=name),
            [
                say("Webhook {name} to {host} gets a new secret, which is shown once.", name=name, host=host),
                overlap,
            ],
            "Make a new secret",
            PAGE,
        )

    async def before_remove(request: Request, name: str) -> Confirmation:
        host = await _host(name)
        waiting = await context.reading.row(
            "select count(*) as waiting from (select 1 from fencepost.outbox_messages"
            " where channel = %s and settled_at is null limit 10000) w",
            name,
        )
        dead = waiting["waiting"] if waiting is not None else 0
        return Confirmation(
            say("Remove webhook {name}?", name=name),
            [
                say("Nothing is delivered to {host} any more.", host=host),
                say("{dead} end as dead.", dead=counted(dead, "waiting message")),
            ],
            say("Remove {name}", name=name),
            PAGE,
        )

    async def before_pause(request: Request, name: str) -> Confirmation:
        told = say(
            "Nothing is delivered to {what} until it is resumed. Messages are kept.", what=await _host(name)
        )
        return Confirmation(
            say("Pause webhook {name}?", name=name), [told], say("Pause {name}", name=name), PAGE
        )

    async def _host(name: str) -> str:
        row = await context.reading.row("select host from fencepost.webhooks where name = %s", name)
        if row is None:
            raise NotFound(say("There is no webhook {name}.", name=name))
        return row["host"] or say("the program that takes it")

    @context.router.action("/webhooks", "webhook.add", needs=Role.ADMIN)
    async def add(request: Request, body: NewWebhook) -> ActionDone:
        """Register a webhook. Its secret is shown once."""
        actor = visitor_of(request).actor
        secret = await context.fp.run(calls.add(body.name, checked(body.url), body.topics, actor))
        return ActionDone(say("{name} is added.", name=body.name), PAGE, secret=secret)

    @context.router.action("/webhooks/{name}/change", "webhook.change", needs=Role.ADMIN)
    async def change(request: Request, name: WebhookName, body: ChangeWebhook) -> ActionDone:
        """Change the URL or the topics. Waiting messages go to the new URL."""
        call = calls.change(name, visitor_of(request).actor, url=checked(body.url), topics=body.topics)
        return ActionDone(say("{name} is changed.", name=name), PAGE, secret=await context.fp.run(call))

    @context.router.action("/webhooks/{name}/rotate", "webhook.rotate", needs=Role.ADMIN, asks=before_rotate)
    async def rotate(request: Request, name: WebhookName, body: Rotate) -> ActionDone:
        """Make a new secret, which is shown once. The old one signs too until the overlap ends."""
        secret = await context.fp.run(calls.rotate(name, body.overlap_seconds, visitor_of(request).actor))
        return ActionDone(say("{name} has a new secret.", name=name), PAGE, secret=secret)

    @context.router.action("/webhooks/{name}/remove", "webhook.remove", needs=Role.ADMIN, asks=before_remove)
    async def remove(request: Request, name: WebhookName) -> ActionDone:
        """Remove a webhook and its secrets. Messages that wait for it end as dead."""
        dead = await context.fp.run(calls.remove(name, visitor_of(request).actor))
        return ActionDone(
            say("{name} is removed; {dead} messages are dead.", name=name, dead=dead), PAGE, {"dead": dead}
        )

    @context.router.action("/webhooks/{name}/pause", "webhook.pause", asks=before_pause)
    async def pause(request: Request, name: WebhookName) -> ActionDone:
        """Deliver nothing until it is resumed. Messages are kept."""
        await context.fp.run(calls.pause(name, visitor_of(request).actor))
        return ActionDone(say("{name} is paused.", name=name), PAGE)

    @context.router.action("/webhooks/{name}/resume", "webhook.resume")
    async def resume(request: Request, name: WebhookName) -> ActionDone:
        """Deliver again, from the first message that waits."""
        await context.fp.run(calls.pause(name, visitor_of(request).actor, is_paused=False))
        return ActionDone(say("{name} is resumed.", name=name), PAGE)

    @context.router.action("/webhooks/redeliver/{message_id}", "webhook.redeliver")
    async def redeliver(request: Request, message_id: MessageId) -> ActionDone:
        """Deliver a dead message again, with the same Idempotency-Key."""
        new_id = await context.fp.run(calls.redeliver(message_id, visitor_of(request).actor))
        return ActionDone(
            say("Message {message_id} waits again as {new_id}.", message_id=message_id, new_id=new_id),
            f"/console/outbox/{new_id}",
            {"message_id": new_id},
        )
