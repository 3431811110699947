"""Batches: many jobs and their callback, with how many of them ended and how."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query, Request
from pydantic import BaseModel

from fencepost.errors import NotFound
from fencepost_server.console.context import ConsoleContext, Limit, MaybeId, Paged, following
from fencepost_server.console.page_data import PageData

BatchId = Annotated[int, Path(ge=1, le=9_223_372_036_854_775_807)]


class BatchesQuery(Paged):
    open: bool = False


class BatchQuery(BaseModel):
    after: MaybeId = None
    limit: Limit = 100


def add_pages(context: ConsoleContext) -> None:
    @context.router.page("/batches", "batches.html", "Batches")
    async def batches(request: Request, query: Annotated[BatchesQuery, Query()]) -> PageData:
        """Batches, newest first: how many of their jobs ended, and how."""
        rows = await context.reading.rows(
            "select * from fencepost.console_batch_page(%s::boolean, %s::bigint, %s::integer)",
            query.open,
            query.before,
            query.limit,
        )
        facts = {
            "batches": rows,
            "next_before": following(rows, "batch_id", query.limit),
            "filters": {**query.filters(), "open": "true" if query.open else None},
        }
        return PageData(facts, rows="batches")

    @context.router.page("/batches/{batch_id}", "batch.html", "Batch")
    async def batch(request: Request, batch_id: BatchId, query: Annotated[BatchQuery, Query()]) -> PageData:
        """One batch: its jobs, and the callback that runs when the last of them has ended."""
        row = await context.reading.row("select * from fencepost.batches where batch_id = %s", batch_id)
        if row is None:
            raise NotFound(f"There is no batch {batch_id}: it never existed, or it was pruned.")
        jobs = await context.reading.rows(
            "select * from fencepost.console_batch_jobs(%s::bigint, %s::bigint, %s::integer)",
            batch_id,
            query.after,
            query.limit,
        )
        facts = {
            "title": f"Batch {batch_id}",
            "batch": row,
            "jobs": jobs,
            "next_after": following(jobs, "job_id", query.limit),
            "filters": {"limit": query.limit if query.limit != 100 else None},
        }
        return PageData(facts, rows="jobs")
