"""Rejudging over HTTP."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from fencepost.client import Fencepost
from fencepost.errors import NotFound
from fencepost_judge import _rejudging as rejudging
from fencepost_judge._authentication import Who
from fencepost_judge._language import Name
from fencepost_judge._problem import Slug
from fencepost_judge._rejudging import Filter, Generation
from fencepost_judge._service import Judging
from fencepost_server.web.forms import Id

Limit = Annotated[int, Query(ge=1, le=1000)]


class RejudgeRequest(BaseModel):
    """Submissions by id, or all of a problem or an author; language and verdict narrow the selection."""

    model_config = ConfigDict(extra="forbid")

    submissions: Annotated[list[Id], Field(min_length=1, max_length=1000)] | None = None
    problem_id: Slug | None = None
    author: Annotated[str, Field(min_length=1, max_length=100)] | None = None
    language: Name | None = None
    verdict: Annotated[str, Field(pattern=r"^[A-Z]{2,3}$")] | None = None
    reason: Annotated[str, Field(min_length=1, max_length=200)]

    def filter(self) -> Filter:
        return Filter(
            submissions=self.submissions,
            problem=self.problem_id,
            author=self.author,
            language=self.language,
            verdict=self.verdict,
        )


def add(router: APIRouter, judging: Judging) -> None:
    fp = judging.fp

    @router.post("/judge/api/rejudgings", status_code=202)
    async def rejudge(request: RejudgeRequest, who: Who) -> dict[str, Any]:
        """Judge submissions again, beside their standing results. Nothing changes until the generation is
        applied."""
        return asdict(await judging.rejudge(request.filter(), reason=request.reason, actor=who.name))

    @router.get("/judge/api/rejudgings")
    async def rejudgings(before: Id | None = None, limit: Limit = 50) -> list[dict[str, Any]]:
        return [asdict(one) for one in await fp.run(rejudging.generations(before=before, limit=limit))]

    @router.get("/judge/api/rejudgings/{generation}")
    async def rejudging_of(
        generation: Id, everything: bool = False, after: Id | None = None, limit: Limit = 1000
    ) -> dict[str, Any]:
        """One generation and the results it changes; with `everything`, the unchanged ones too."""
        found = await find(fp, generation)
        changes = await fp.run(
            rejudging.changes(generation, changed=not everything, after=after, limit=limit)
        )
        return {**asdict(found), "changes": [asdict(one) for one in changes]}

    @router.post("/judge/api/rejudgings/{generation}/apply")
    async def apply(generation: Id, who: Who) -> dict[str, int]:
        """Make the results of the generation the standing ones: all of them, or none."""
        return {"replaced": await fp.run(rejudging.apply(generation, who.name))}

    @router.post("/judge/api/rejudgings/{generation}/drop", status_code=204)
    async def drop(generation: Id, who: Who) -> None:
        await fp.run(rejudging.drop(generation, who.name))


async def find(fp: Fencepost, generation: int) -> Generation:
    found = await fp.run(rejudging.generations(one=generation, limit=1))
    if not found:
        raise NotFound(f"There is no rejudging {generation}.", noun="rejudging", subject=str(generation))
    return found[0]
