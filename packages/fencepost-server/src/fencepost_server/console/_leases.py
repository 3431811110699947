"""Leases, the history of their tokens, and refusals."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

from fastapi import Path, Query, Request
from pydantic import Field

from fencepost.errors import NotFound
from fencepost_server.console._jobs import life
from fencepost_server.console.context import (
    ConsoleContext,
    Limit,
    MaybeId,
    Name,
    Paged,
    wanted,
)
from fencepost_server.console.listing import Listing, ListQuery
from fencepost_server.console.page_data import PageData
from fencepost_server.web.words import say

LAST_LETTER = chr(0x10FFFF)
WITHIN = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(weeks=1)}
_LEASES = Listing(
    table="leases",
    sql="select resource, owner, token, acquired_at, renewed_at, expires_at, held"
    " from fencepost.lease_status where resource > coalesce(%(after)s::text, '')"
    " and resource >= %(prefix)s and resource < %(until)s order by resource limit %(limit)s",
    key=("resource",),
    positions=("after",),
    is_descending=False,
    columns={
        "resource": "text",
        "owner": "text",
        "token": "bigint",
        "acquired_at": "timestamptz",
        "renewed_at": "timestamptz",
        "expires_at": "timestamptz",
        "held": "boolean",
    },
    searched=("resource", "owner"),
)
_TAKEOVERS = Listing(
    table="takeovers",
    sql="select event_id, at, resource, owner, token, detail"
    " from fencepost.console_takeover_page(%(taken_before)s::bigint, %(limit)s::integer)",
    key=("event_id",),
    positions=("taken_before",),
    is_descending=True,
    columns={
        "event_id": "bigint",
        "at": "timestamptz",
        "resource": "text",
        "owner": "text",
        "token": "bigint",
    },
)
_REFUSALS = Listing(
    table="refusals",
    sql="select refusal_id, at, kind, reason, noun, subject, actor, attempted, seen"
    " from fencepost.refusals where refusal_id = any (%(ids)s) order by refusal_id desc",
    key=("refusal_id",),
    positions=("before",),
    is_descending=True,
    columns={
        "refusal_id": "bigint",
        "at": "timestamptz",
        "kind": "text",
        "reason": "text",
        "noun": "text",
        "subject": "text",
        "actor": "text",
    },
    searched=("reason", "noun", "subject", "actor"),
)
Resource = Annotated[str, Path(min_length=1, max_length=1024, pattern=r"^[^\x00]+$")]


class LeaseQuery(ListQuery):
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
        leases = await context.lists.read(
            _LEASES, query, query.limit, {"prefix": prefix, "until": prefix + LAST_LETTER}
        )
        takeovers = await context.lists.read(_TAKEOVERS, query, query.limit)
        return PageData(
            {
                "leases": leases.rows,
                "takeovers": takeovers.rows,
                **takeovers.next,
                **leases.next,
                "filters": {
                    "prefix": prefix or None,
                    "part": query.part or None,
                    "limit": query.limit if query.limit != 50 else None,
                },
            },
            "leases",
            ("takeovers",),
            {"leases": leases.state, "takeovers": takeovers.state},
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
            raise NotFound(say("There is no lease on {resource}.", resource=resource))
        return PageData(
            {"title": resource, "lease": row, "life": await life(context, f"lease:{resource}")}, rows="life"
        )

    @context.router.page("/refusals", "refusals.html", "Refusals")
    async def refusals(request: Request, query: Annotated[RefusalQuery, Query()]) -> PageData:
        """What the database refused: late writes, conflicts of callers, and routine; newest first."""
        seen = await context.live_snapshot.newest()

        async def ids(before: int | None, limit: int) -> tuple[list[int], int | None]:
            return await context.reading.page(
                "select ids, next_before from fencepost.console_refusal_page(%s::text, %s::text, %s::text,"
                " %s::timestamptz, %s::bigint, %s::integer, %s::integer)",
                wanted(query.kind),
                wanted(query.reason),
                wanted(query.noun),
                query.since,
                before,
                limit,
                context.settings.scan_max,
            )

        page = await context.lists.read(_REFUSALS, query, query.limit, ids=ids)
        return PageData(
            {
                "reasons": seen.refusals,
                "refusals": page.rows,
                "kinds": seen.refusal_kinds,
                **page.next,
                "filters": query.filters(),
            },
            "refusals",
            ("reasons",),
            {"refusals": page.state},
        )
