"""Leases, the history of their tokens, and refusals."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

from fastapi import Path, Query, Request
from pydantic import BaseModel, Field

from fencepost.errors import NotFound
from fencepost_server.console._jobs import life
from fencepost_server.console.context import (
    ConsoleContext,
    Limit,
    MaybeId,
    Name,
    Paged,
    following,
    wanted,
)
from fencepost_server.console.page_data import PageData

LAST_LETTER = chr(0x10FFFF)
WITHIN = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(weeks=1)}
Resource = Annotated[str, Path(min_length=1, max_length=1024, pattern=r"^[^\x00]+$")]


class LeaseQuery(BaseModel):
    prefix: Name | None = None
    after: Name | None = None
    taken_before: MaybeId = None
    limit: Limit = 50


class RefusalQuery(Paged):
    kind: Literal["", "late", "conflict", "routine"] | None = None
    reason: Name | None = None
    noun: Name | None = None
    within: Annotated[
        Literal["", "hour", "day", "week"] | None, Field(description="Only what was recorded this lately.")
    ] = None

    @property
    def since(self) -> datetime | None:
        return datetime.now(UTC) - WITHIN[self.within] if self.within else None


def add_pages(context: ConsoleContext) -> None:
    @context.router.page("/leases", "leases.html", "Leases")
    async def leases(request: Request, query: Annotated[LeaseQuery, Query()]) -> PageData:
        """The owner and the expiry of each lease, in order of name; and the newest takeovers."""
        prefix = wanted(query.prefix) or ""
        rows = await context.reading.rows(
            "select resource, owner, token, acquired_at, renewed_at, expires_at, held"
            " from fencepost.lease_status where resource > %s and resource >= %s and resource < %s"
            " order by resource limit %s",
            query.after or "",
            prefix,
            prefix + LAST_LETTER,
            query.limit,
        )
        takeovers = await context.reading.rows(
            "select event_id, at, resource, owner, token, detail"
            " from fencepost.console_takeover_page(%s::bigint, %s::integer)",
            query.taken_before,
            query.limit,
        )
        return PageData(
            {
                "leases": rows,
                "next_after": following(rows, "resource", query.limit),
                "takeovers": takeovers,
                "next_taken_before": following(takeovers, "event_id", query.limit),
                "filters": {"prefix": prefix or None, "limit": query.limit if query.limit != 50 else None},
            },
            "leases",
            ("takeovers",),
            {"takeovers": "taken_before"},
        )

    @context.router.page("/leases/{resource:path}", "lease.html", "Lease")
    async def lease(request: Request, resource: Resource) -> PageData:
        """One lease: its owner, and every token that was issued and is still recorded."""
        row = await context.reading.row(
            "select resource, owner, token, ttl, acquired_at, renewed_at, expires_at, held"
            " from fencepost.lease_status where resource = %s",
            resource,
        )
        if row is None:
            raise NotFound(f"There is no lease on {resource}.")
        return PageData(
            {"title": resource, "lease": row, "life": await life(context, f"lease:{resource}")}, rows="life"
        )

    @context.router.page("/refusals", "refusals.html", "Refusals")
    async def refusals(request: Request, query: Annotated[RefusalQuery, Query()]) -> PageData:
        """What the database refused: late writes, conflicts of callers, and routine; newest first."""
        seen = await context.live_snapshot.newest()
        ids, next_before = await context.reading.page(
            "select ids, next_before from fencepost.console_refusal_page(%s::text, %s::text, %s::text,"
            " %s::timestamptz, %s::bigint, %s::integer, %s::integer)",
            wanted(query.kind),
            wanted(query.reason),
            wanted(query.noun),
            query.since,
            query.before,
            query.limit,
            context.settings.scan_max,
        )
        rows = await context.reading.rows(
            "select refusal_id, at, kind, reason, noun, subject, actor, attempted, seen"
            " from fencepost.refusals where refusal_id = any (%s) order by refusal_id desc",
            ids,
        )
        return PageData(
            {
                "reasons": seen.refusals,
                "refusals": rows,
                "kinds": seen.refusal_kinds,
                "next_before": next_before,
                "filters": query.filters(),
            },
            "refusals",
            ("reasons",),
        )
