"""Batches: many jobs and their callback, with how many of them ended and how."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query, Request

from fencepost.errors import NotFound
from fencepost_server.console.context import ConsoleContext, Limit, MaybeId, Paged
from fencepost_server.console.listing import Listing, ListQuery
from fencepost_server.console.page_data import PageData
from fencepost_server.web.words import say

_BATCHES = Listing(
    table="batches",
    sql="select batch_id, name, size, remaining, finished, dead, cancelled, made_at, completed_at,"
    " callback_job_id from fencepost.console_batch_page(%(open)s::boolean, %(before)s::bigint,"
    " %(limit)s::integer)",
    key=("batch_id",),
    positions=("before",),
    is_descending=True,
    columns={
        "batch_id": "bigint",
        "name": "text",
        "size": "bigint",
        "remaining": "bigint",
        "finished": "bigint",
        "dead": "bigint",
        "cancelled": "bigint",
        "made_at": "timestamptz",
        "completed_at": "timestamptz",
        "callback_job_id": "bigint",
    },
    searched=("name",),
)
_JOBS = Listing(
    table="jobs",
    sql="select job_id, queue, kind, state, tries, submitted_at, finished_at, error"
    " from fencepost.console_batch_jobs(%(batch_id)s::bigint, %(after)s::bigint, %(limit)s::integer)",
    key=("job_id",),
    positions=("after",),
    is_descending=False,
    columns={
        "job_id": "bigint",
        "queue": "text",
        "kind": "text",
        "state": "text",
        "tries": "bigint",
        "submitted_at": "timestamptz",
        "finished_at": "timestamptz",
        "error": "text",
    },
    searched=("state", "queue", "kind", "error"),
)
BatchId = Annotated[int, Path(ge=1, le=9_223_372_036_854_775_807)]


class BatchesQuery(Paged):
    open: bool = False


class BatchQuery(ListQuery):
    after: MaybeId = None
    limit: Limit = 100


def add_pages(context: ConsoleContext) -> None:
    @context.router.page("/batches", "batches.html", "Batches")
    async def batches(request: Request, query: Annotated[BatchesQuery, Query()]) -> PageData:
        """Batches, newest first: how many of their jobs ended, and how."""
        page = await context.lists.read(_BATCHES, query, query.limit, {"open": query.open})
        facts = {
            "batches": page.rows,
            **page.next,
            "filters": {**query.filters(), "open": "true" if query.open else None},
        }
        return PageData(facts, "batches", lists={"batches": page.state})

    @context.router.page("/batches/{batch_id}", "batch.html", "Batch")
    async def batch(request: Request, batch_id: BatchId, query: Annotated[BatchQuery, Query()]) -> PageData:
        """One batch: its jobs, and the callback that runs when the last of them has ended."""
        row = await context.reading.row("select * from fencepost.batches where batch_id = %s", batch_id)
        if row is None:
            raise NotFound(
                say("There is no batch {batch_id}: it never existed, or it was pruned.", batch_id=batch_id)
            )
        jobs = await context.lists.read(_JOBS, query, query.limit, {"batch_id": batch_id})
        facts = {
            "title": say("Batch {batch_id}", batch_id=batch_id),
            "batch": row,
            "jobs": jobs.rows,
            **jobs.next,
            "filters": {
                "part": query.part or None,
                "limit": query.limit if query.limit != 100 else None,
            },
        }
        return PageData(facts, "jobs", lists={"jobs": jobs.state})
