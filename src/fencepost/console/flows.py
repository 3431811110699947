"""Flows: who runs what, and the checkpoints that are durable."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Request
from pydantic import BaseModel

from fencepost.console.place import Limit, Name, Place, wanted
from fencepost.console.sheet import Sheet


class CheckpointQuery(BaseModel):
    resource: Name | None = None
    after: Name | None = None
    limit: Limit = 50


def add_pages(place: Place) -> None:
    @place.desk.page("/flows", "flows.html", "Flows")
    async def flows(request: Request, query: Annotated[CheckpointQuery, Query()]) -> Sheet:
        """The newest checkpoint of each resource, or all of one resource."""
        if wanted(query.resource):
            rows = await place.reading.rows(
                "select c.*, l.owner, l.held, l.expires_at from fencepost.checkpoints c"
                " left join fencepost.lease_status l on l.resource = c.resource"
                " where c.resource = %s order by c.number desc limit %s",
                query.resource,
                query.limit,
            )
        else:
            rows = await place.reading.rows(
                "select c.*, l.owner, l.held, l.expires_at from"
                " fencepost.console_checkpointed(%s::text, %s::integer) r"
                " join fencepost.checkpoints c on c.resource = r.resource and c.number = r.number"
                " left join fencepost.lease_status l on l.resource = c.resource order by c.resource",
                query.after,
                query.limit,
            )
        more = rows[-1]["resource"] if len(rows) == query.limit and not query.resource else None
        filters = {"resource": wanted(query.resource)}
        return Sheet({"checkpoints": rows, "next_after": more, "filters": filters}, rows="checkpoints")
