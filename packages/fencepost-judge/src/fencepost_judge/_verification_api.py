"""Verifying packages over HTTP."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from fencepost_judge._authentication import Who
from fencepost_judge._problem import Slug
from fencepost_judge._service import Judging
from fencepost_judge._uploads import stored_zip
from fencepost_server.web.forms import Id

Limit = Annotated[int, Query(ge=1, le=200)]
TimeLimit = Annotated[float, Query(ge=0.01, le=600)]


def add(router: APIRouter, judging: Judging) -> None:
    @router.post("/judge/api/verifications", status_code=202)
    async def verify(
        name: Slug, request: Request, who: Who, time_limit: TimeLimit | None = None
    ) -> dict[str, int]:
        """Verify a package: the body is its zip, and `name` the slug that it would get. Nothing is imported.
        `time_limit`, in seconds, replaces the package's."""
        async with stored_zip(request.stream()) as place:
            return {"job_id": await judging.verifications.submit(place, name, time_limit, actor=who.name)}

    @router.get("/judge/api/verifications")
    async def verifications(before: Id | None = None, limit: Limit = 50) -> list[dict[str, Any]]:
        """Newest first, without their reports' text."""
        found = [asdict(one) for one in await judging.verifications.newest(before, limit)]
        for one in found:
            if one["report"] is not None:
                one["report"].pop("text", None)
        return found

    @router.get("/judge/api/verifications/{job_id}")
    async def verification(job_id: Id) -> dict[str, Any]:
        """One verification: its progress while it runs, and then its report, in Markdown."""
        return asdict(await judging.verifications.get(job_id))
