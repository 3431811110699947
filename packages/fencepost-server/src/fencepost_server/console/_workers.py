"""Workers: which there are, which are out of service and why, and the decisions about them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated

from fastapi import Request
from pydantic import BaseModel, BeforeValidator, Field

from fencepost.errors import InvalidInput
from fencepost.kernel import worker
from fencepost.kernel.call import Call
from fencepost_server.console._read_pool import Row
from fencepost_server.console.bulk_actions import Act, BulkActions, Choice, add_bulk_actions
from fencepost_server.console.context import ConsoleContext
from fencepost_server.console.page_data import ActionDone, PageData
from fencepost_server.console.router import visitor_of
from fencepost_server.web.questions import Confirmation, counted
from fencepost_server.web.words import say

PAGE = "/console/workers"


def _words(value: object) -> object:
    """With commas or blanks between them, as a form sends them; an empty field restricts nothing."""
    if isinstance(value, str):
        return value.replace(",", " ").split() or None
    return value


Target = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[^\x00]+$")]
Reason = Annotated[str, Field(min_length=1, max_length=1000, pattern=r"^[^\x00]+$")]
Word = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[^\x00]+$")]
Words = Annotated[list[Word] | None, BeforeValidator(_words)]


class Decision(BaseModel):
    model_config = {"extra": "forbid"}

    target: Target
    """A host, NAME@HOST, or the whole name of one process."""
    reason: Reason


class Pin(Decision):
    queues: Words = None
    kinds: Words = None
    offers: Words = None
    """Abilities, such as language:cpp."""


def add_pages(context: ConsoleContext) -> None:
    @context.router.page("/workers", "workers.html", "Workers")
    async def workers(request: Request) -> PageData:
        """The workers that are there, and the targets that are held or pinned."""
        rows = await context.reading.rows(
            "select target, owner, name, host, since, queues, kinds, offers, running, state, held_by, reason,"
            " actor, held_at, pinned_to, pin_reason, pin_actor from fencepost.worker_list()"
        )
        running = await context.reading.rows(
            "select owner, job_id, kind from fencepost.console_running_jobs(5)"
        )
        held: dict[str, list[Row]] = {}
        for job in running:
            held.setdefault(job["owner"], []).append({"job_id": job["job_id"], "kind": job["kind"]})
        workers = [{**row, "jobs": held.get(row["owner"] or "", [])} for row in rows]
        return PageData({"workers": workers}, "workers")


def _add_bulk_actions(context: ConsoleContext) -> None:
    async def states(_: Request, targets: Sequence[str]) -> Mapping[str, str]:
        rows = await context.reading.rows(
            "select target, state from fencepost.worker_list() where target = any (%s)", list(targets)
        )
        return {row["target"]: row["state"] for row in rows}

    def each(call: Callable[[str, str, str], Call[list[str]]]) -> Act:
        async def act(target: str, request: Request, reason: str) -> None:
            await context.fp.run(call(target, visitor_of(request).actor, reason))

        return act

    choices = {
        "drain": Choice(
            verb="Drain",
            done="drained",
            consequence="They claim nothing more and finish what they hold; new processes claim.",
            act=each(worker.drain),
        ),
        "disable": Choice(
            verb="Disable",
            done="disabled",
            consequence="They claim nothing until they are enabled, also after a restart.",
            act=each(worker.disable),
        ),
        "enable": Choice(
            verb="Enable",
            done="enabled",
            consequence="They claim again.",
            act=each(worker.enable),
        ),
    }
    actions = BulkActions(
        table="workers",
        action="worker.settle",
        one="worker",
        many="workers",
        back=PAGE,
        choices=choices,
        states=states,
        reason=True,
    )
    add_bulk_actions(context, actions)


def add_actions(context: ConsoleContext) -> None:
    _add_bulk_actions(context)

    async def decide(
        request: Request, body: Decision, call: Callable[[str, str, str], Call[list[str]]], told: str
    ) -> ActionDone:
        owners = await context.fp.run(call(body.target, visitor_of(request).actor, body.reason))
        return ActionDone(
            say("{target} {told}.", target=body.target, told=say(told)), PAGE, {"workers": owners}
        )

    def asked(verb: str, consequence: str) -> Callable[..., Awaitable[Confirmation]]:
        async def ask(request: Request, body: Decision) -> Confirmation:
            row = await context.reading.row(
                "select count(*) as workers, coalesce(sum(running), 0) as running"
                " from fencepost.worker_list()"
                " where %s in (target, owner, host, name || '@' || host) and owner is not null",
                body.target,
            )
            workers, running = (row["workers"], int(row["running"])) if row is not None else (0, 0)
            live = f"{counted(workers, 'live worker')} of {body.target}"
            told = say("{live}: {running} may finish.", live=live, running=counted(running, "running job"))
            return Confirmation(
                f"{verb} {body.target}?",
                [told, consequence, say("Because: {reason}", reason=body.reason)],
                f"{verb} {body.target}",
                PAGE,
            )

        return ask

    @context.router.action(
        "/workers/drain", "worker.drain", asks=asked("Drain", "They claim nothing more; new processes do.")
    )
    async def drain(request: Request, body: Decision) -> ActionDone:
        """Let the processes that are there finish what they hold; they claim nothing more."""
        return await decide(request, body, worker.drain, "is draining: it claims nothing more")

    @context.router.action(
        "/workers/disable",
        "worker.disable",
        asks=asked("Disable", "They claim nothing until they are enabled, also after a restart."),
    )
    async def disable(request: Request, body: Decision) -> ActionDone:
        """Let workers claim nothing until they are enabled, also after a restart."""
        return await decide(request, body, worker.disable, "is disabled, until it is enabled")

    @context.router.action("/workers/enable", "worker.enable")
    async def enable(request: Request, body: Decision) -> ActionDone:
        """Put drained and disabled workers back into service."""
        done = await decide(request, body, worker.enable, "is in service again")
        still = await context.fp.run(worker.standing(body.target))
        if still is None:
            return done
        return ActionDone(
            say(
                "{target} is enabled, but {target2} is still {state}.",
                target=body.target,
                target2=still.target,
                state=still.state,
            ),
            PAGE,
        )

    @context.router.action(
        "/workers/pin",
        "worker.pin",
        asks=asked("Pin", "They claim only what the pin names, until it is unpinned."),
    )
    async def pin(request: Request, body: Pin) -> ActionDone:
        """Restrict workers to some queues, kinds and abilities."""
        if body.queues is body.kinds is body.offers is None:
            raise InvalidInput("Say what to pin it to: queues, kinds or abilities.", field="queues")

        def call(target: str, actor: str, reason: str) -> Call[list[str]]:
            return worker.pin(
                target, actor, reason, queues=body.queues, kinds=body.kinds, abilities=body.offers
            )

        return await decide(request, body, call, "is pinned")

    @context.router.action("/workers/unpin", "worker.unpin")
    async def unpin(request: Request, body: Decision) -> ActionDone:
        """Let workers claim all that they serve again."""
        await context.fp.run(worker.unpin(body.target, visitor_of(request).actor, body.reason))
        return ActionDone(say("{target} is not pinned any more.", target=body.target), PAGE)
