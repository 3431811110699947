"""The work of a jury over HTTP: verdicts to verify, notes, balloons, the archive; and what is new."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from fencepost_judge import _contests as contests
from fencepost_judge import _jury as jury
from fencepost_judge import _teams as teams
from fencepost_judge import _visibility as visibility
from fencepost_judge._archiving import archive_of
from fencepost_judge._authentication import Who
from fencepost_judge._contest_api import Text
from fencepost_judge._jury import Balloon
from fencepost_judge._problem import Slug
from fencepost_judge._role import JudgeRole, JudgeVisitor
from fencepost_judge._service import Judging
from fencepost_server.web.forms import Id

Limit = Annotated[int, Query(ge=1, le=500)]
Verdict = Annotated[str, Field(pattern="^[A-Z]{2,3}$")]


class Verification(BaseModel):
    """The verdict that the jury has seen: another one is not verified."""

    model_config = ConfigDict(extra="forbid")

    generation: Annotated[int, Field(ge=0)]
    verdict: Verdict


class NoteRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    text: Text


class BalloonRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    team: Annotated[str, Field(max_length=36)]
    problem_id: Slug
    delivered: bool = True


def add(router: APIRouter, judging: Judging) -> None:
    fp = judging.fp

    @router.get("/judge/api/contests/{contest}/unverified")
    async def unverified(contest: str, after: Id | None = None, limit: Limit = 100) -> list[dict[str, Any]]:
        """The verdicts that no jury has verified, oldest first."""
        await visibility.contest(fp, contest)
        return [asdict(one) for one in await fp.run(jury.unverified(contest, after, limit))]

    @router.post("/judge/api/submissions/{job_id}/verify")
    async def verify(job_id: Id, request: Verification, who: Who) -> dict[str, str]:
        """Verify a verdict. 409 when another one stands by now."""
        call = jury.verify(job_id, request.generation, request.verdict, who.name)
        return {"verified_by": await fp.run(call)}

    @router.get("/judge/api/submissions/{job_id}/dossier")
    async def dossier(job_id: Id) -> dict[str, Any]:
        """Its judgings beside each other, the notes of juries, and who verified the verdict."""
        await judging.standing(job_id)
        found = await fp.run(jury.dossier(job_id))
        return asdict(found)

    @router.post("/judge/api/submissions/{job_id}/notes", status_code=201)
    async def note(job_id: Id, request: NoteRequest, who: Who) -> None:
        await fp.run(jury.note(job_id, request.text, who.name))

    @router.get("/judge/api/contests/{contest}/balloons")
    async def balloons(contest: str, who: Who) -> list[dict[str, Any]]:
        """A balloon for each problem that a team solved, and who delivered it."""
        return [asdict(one) for one in await balloons_of(judging, who, contest)]

    @router.post("/judge/api/contests/{contest}/balloons")
    async def deliver(contest: str, request: BalloonRequest, who: Who) -> dict[str, str | None]:
        brought = jury.deliver(
            contest, request.team, request.problem_id, who.name, is_delivered=request.delivered
        )
        return {"delivered_by": await fp.run(brought)}

    @router.get("/judge/api/contests/{contest}/archive")
    async def archive(contest: str, who: Who) -> Response:
        """Sources, results, scoreboard, clarifications and decisions, as a zip."""
        return await archive_response(judging, who, contest)

    @router.get("/judge/api/contests/{contest}/news")
    async def news(contest: str, who: Who) -> dict[str, Any]:
        """What the visitor has not read yet: answers and announcements; for a jury, open questions."""
        await visibility.contest(fp, contest)
        found = await fp.run(contests.news(contest, who.name, is_jury=who.may(JudgeRole.JURY)))
        return asdict(found)


async def balloons_of(judging: Judging, who: JudgeVisitor, contest: str) -> list[Balloon]:
    fp = judging.fp
    board = await visibility.board(fp, who, contest)
    locations = {one.id: one.location for one in await fp.run(teams.teams(contest))}
    delivered = await fp.run(jury.deliveries(contest))
    return jury.balloons(board.contest, board.lines, locations, delivered)


async def archive_response(judging: Judging, who: JudgeVisitor, contest: str) -> Response:
    found = await archive_of(judging, who, contest)
    content = await asyncio.to_thread(found.zipped)
    named = {
        "Content-Disposition": f"attachment; filename={contest}.zip",
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
    }
    return Response(content, media_type="application/zip", headers=named)
