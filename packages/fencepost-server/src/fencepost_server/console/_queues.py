"""Queues: what waits and runs in each, its last hour and its limits; idle ones too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import Path, Request

from fencepost.kernel import queue
from fencepost_server.console.bulk_actions import BulkActions, Choice, add_bulk_actions
from fencepost_server.console.context import ConsoleContext
from fencepost_server.console.page_data import ActionDone, PageData
from fencepost_server.console.router import visitor_of
from fencepost_server.web.questions import Confirmation, counted
from fencepost_server.web.words import say

QueueName = Annotated[str, Path(min_length=1, max_length=128, pattern=r"^[^\x00]+$")]
QUEUES_MAX = 500
_IDLE: Mapping[str, Any] = {
    "pending": 0,
    "dispatched": 0,
    "running": 0,
    "dead": 0,
    "oldest_waiting_seconds": None,
    "paused": False,
    "due": 0,
}


def add_pages(context: ConsoleContext) -> None:
    @context.router.page("/queues", "queues.html", "Queues")
    async def queues(request: Request) -> PageData:
        """Every queue: what waits, runs and is dead; and the live workers, including idle ones."""
        seen = await context.live_snapshot.newest()
        workers = await context.reading.rows("select * from fencepost.console_workers()")
        hours = {
            row["queue"]: row
            for row in await context.reading.rows("select * from fencepost.console_queues(%s)", QUEUES_MAX)
        }
        limits = {
            row["queue"]: row
            for row in await context.reading.rows(
                "select queue, waiting_max, per_second as rate_max, burst"
                " from fencepost.console_queue_limits()"
            )
        }
        idle = [{**_IDLE, "queue": name} for name in hours.keys() - {one["queue"] for one in seen.queues}]
        queues = [
            {
                **queue,
                "later": queue["pending"] - queue["due"],
                "ended": hours.get(queue["queue"], {}).get("ended", []),
                "per_second": hours.get(queue["queue"], {}).get("per_second", 0.0),
                "run_p95_seconds": hours.get(queue["queue"], {}).get("run_p95_seconds"),
                **(limits.get(queue["queue"]) or {"waiting_max": None, "rate_max": None, "burst": None}),
            }
            for queue in sorted([*seen.queues, *idle], key=lambda one: one["queue"])
        ]
        return PageData({"queues": queues, "workers": workers, "at": seen.at}, "queues", ("workers",))


def _add_bulk_actions(context: ConsoleContext) -> None:
    async def states(_: Request, names: Sequence[str]) -> Mapping[str, str]:
        queues = {one["queue"]: one for one in (await context.live_snapshot.refresh()).queues}
        return {name: "paused" if queues.get(name, _IDLE)["paused"] else "open" for name in names}

    async def pause(name: str, request: Request, _: str) -> None:
        await context.fp.run(queue.pause(name, visitor_of(request).actor))

    async def resume(name: str, request: Request, _: str) -> None:
        await context.fp.run(queue.resume(name, visitor_of(request).actor))

    choices = {
        "pause": Choice(
            verb="Pause",
            done="paused",
            consequence="No job of them starts until they are resumed; running jobs may finish.",
            act=pause,
            fits=("open",),
        ),
        "resume": Choice(
            verb="Resume",
            done="resumed",
            consequence="Their jobs start again.",
            act=resume,
            fits=("paused",),
        ),
    }
    actions = BulkActions(
        table="queues",
        action="queue.settle",
        one="queue",
        many="queues",
        back="/console/queues",
        choices=choices,
        states=states,
    )
    add_bulk_actions(context, actions)


def add_actions(context: ConsoleContext) -> None:
    _add_bulk_actions(context)

    async def before_pause(request: Request, queue_name: str) -> Confirmation:
        queues = {one["queue"]: one for one in (await context.live_snapshot.refresh()).queues}
        seen = queues.get(queue_name, {})
        waiting = seen.get("pending", 0) + seen.get("dispatched", 0)
        return Confirmation(
            say("Pause queue {queue_name}?", queue_name=queue_name),
            [
                say(
                    "No job of {queue_name} starts until it is resumed: {waiting} wait.",
                    queue_name=queue_name,
                    waiting=counted(waiting, "job"),
                ),
                say("{value} may finish.", value=counted(seen.get("running", 0), "running job")),
            ],
            say("Pause {queue_name}", queue_name=queue_name),
            "/console/queues",
        )

    @context.router.action("/queues/{queue_name}/pause", "queue.pause", asks=before_pause)
    async def pause(request: Request, queue_name: QueueName) -> ActionDone:
        """No job of the queue starts; running jobs continue."""
        await context.fp.run(queue.pause(queue_name, visitor_of(request).actor))
        context.live_snapshot.forget()
        return ActionDone(
            say("{queue_name} is paused. Running jobs continue.", queue_name=queue_name), "/console/queues"
        )

    @context.router.action("/queues/{queue_name}/resume", "queue.resume")
    async def resume(request: Request, queue_name: QueueName) -> ActionDone:
        """The queue's jobs start again."""
        await context.fp.run(queue.resume(queue_name, visitor_of(request).actor))
        context.live_snapshot.forget()
        return ActionDone(say("{queue_name} is resumed.", queue_name=queue_name), "/console/queues")
