"""The judge over HTTP."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from fencepost.judge import contest_api, contests, people_api, rejudge_api, trial_api, worker_api
from fencepost.judge import doors as entrance
from fencepost.judge.access import ACCESS
from fencepost.judge.doors import Doors, Who, author_of
from fencepost.judge.problem import Slug
from fencepost.judge.program_request import ProgramRequest
from fencepost.judge.records import Standing
from fencepost.judge.role import Role, Visitor
from fencepost.judge.service import Judging, no_submission

LOOK_SECONDS = 0.25
KEEP_ALIVE_LOOKS = 60
SAMPLE_BYTES_MAX = 4096
Limit = Annotated[int, Query(ge=1, le=200)]
Key = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=200)]


class SubmitRequest(ProgramRequest):
    """A program for a problem."""

    problem_id: Slug
    contest: Slug | None = None
    author: Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f]+$")] | None = None


class SubmitAnswer(BaseModel):
    job_id: int


def make_router(judging: Judging, *, house_token: str | None = None) -> APIRouter:
    """Everything that the table of `access.py` names, and nothing else."""
    doors = Doors(judging.fp, house_token=house_token, source_max_bytes=judging.settings.source_max_bytes)
    router = entrance.make_router(doors)
    _add_submissions(router, judging)
    _add_problems(router, judging)
    for module in (people_api, rejudge_api, contest_api, trial_api, worker_api):
        module.add(router, judging)
    assert entrance.lines_of(router) == set(ACCESS), "a line of the table has no route"
    return router


def _add_submissions(router: APIRouter, judging: Judging) -> None:
    @router.post("/submit", status_code=202)
    async def submit(request: SubmitRequest, who: Who, key: Key = None) -> SubmitAnswer:
        """Submit a program. The same Idempotency-Key and body again answers the same job."""
        if not who.may(Role.JURY):
            await judging.check_shown(request.problem_id)
        job_id = await judging.submit(
            request.problem_id,
            request.language,
            request.files(),
            author=author_of(who, request.author),
            contest=request.contest,
            key=key,
            limited=who.is_limited,
        )
        return SubmitAnswer(job_id=job_id)

    @router.get("/status/{job_id}")
    async def status(job_id: int, who: Who) -> dict[str, Any]:
        """Where a submission stands: its state, its attempt, and its result once there is one."""
        return as_json(await _seen_by(who, judging, job_id))

    @router.get("/status/{job_id}/events")
    async def events(job_id: int, who: Who) -> StreamingResponse:
        """The same as server-sent events: one at once, one for each change, the last with the verdict."""
        await _seen_by(who, judging, job_id)
        return StreamingResponse(
            _events(judging, job_id), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
        )

    @router.get("/submissions")
    async def history(
        who: Who,
        author: Annotated[str | None, Query(min_length=1, max_length=100)] = None,
        before: int | None = None,
        limit: Limit = 50,
    ) -> list[dict[str, Any]]:
        """The submissions of one author, newest first; one's own, unless another is named."""
        past = await judging.history(author_of(who, author), before, limit)
        return [{name: getattr(one, name) for name in one.__slots__} for one in past]

    @router.get("/languages")
    async def languages() -> list[str]:
        return judging.languages


def _add_problems(router: APIRouter, judging: Judging) -> None:
    @router.get("/problems")
    async def problems(who: Who, after: str | None = None, limit: Limit = 100) -> list[dict[str, Any]]:
        """Titles by slug; fewer than `limit` when some of them belong to a contest that has not begun."""
        found = await judging.problems(after, limit)
        slugs = [] if who.may(Role.JURY) else [one.slug for one in found]
        hidden = await judging.fp.run(contests.hidden(slugs))
        return [
            {"slug": one.slug, "version": one.version, "title": one.title}
            for one in found
            if one.slug not in hidden
        ]

    @router.get("/problems/{slug}")
    async def problem(slug: str, who: Who) -> dict[str, Any]:
        """The statement, the limits and the samples; never the secret data."""
        if not who.may(Role.JURY):
            await judging.check_shown(slug)
        found = await judging.problem(slug)
        samples = [case for case in found.problem.data.all_cases() if case.sample]
        shown = [
            await asyncio.to_thread(_sample, judging, case.name, case.input, case.answer) for case in samples
        ]
        return {
            "slug": found.slug,
            "version": found.version,
            "title": found.title,
            "statement": found.problem.statement,
            "time_ms": found.problem.bounds.time_ms,
            "memory_kb": found.problem.bounds.memory_kb,
            "scoring": found.problem.scoring,
            "interactive": found.problem.interactive,
            "samples": shown,
        }

    @router.put("/problems/{slug}")
    async def put_problem(slug: Slug, request: Request) -> dict[str, Any]:
        """Import a package: the body is its zip."""
        body = await request.body()
        with tempfile.NamedTemporaryFile(prefix="fencepost-import-", suffix=".zip") as file:
            await asyncio.to_thread(file.write, body)
            file.flush()
            made = await judging.import_problem(Path(file.name), slug=slug)
        return {"slug": made.slug, "version": made.version, "title": made.title}


async def _seen_by(who: Visitor, judging: Judging, job_id: int) -> Standing:
    """To who may not see it, it is not there."""
    standing = await judging.standing(job_id)
    if not who.sees(standing.author):
        raise no_submission(job_id)
    return standing


def as_json(standing: Standing) -> dict[str, Any]:
    """The document of one submission, by the names of the protocol."""
    result: dict[str, Any] = dict(standing.result or {})
    state = str(standing.job.get("state", "finished")).upper()
    return {
        "job_id": standing.job_id,
        "problem_id": standing.slug,
        "problem_version": standing.version,
        "language": standing.language,
        "author": standing.author,
        "submitted_at": standing.submitted_at.isoformat(),
        "status": "FINISHED" if result else state,
        "attempt_id": result.get("attempt", standing.job.get("attempt")),
        "final_status": standing.job.get("final_status"),
        "progress": standing.progress,
        "result": result or None,
    }


async def _events(judging: Judging, job_id: int) -> AsyncGenerator[str]:
    """By looking: an event that was missed is seen at the next look, and nothing has to be remembered."""
    told, still = "", 0
    while True:
        document = as_json(await judging.standing(job_id))
        line = json.dumps(document, default=str)
        if line != told:
            told, still = line, 0
            yield f"event: status\ndata: {line}\n\n"
        if document["status"] in ("FINISHED", "DEAD", "CANCELLED"):
            return
        still += 1
        if still % KEEP_ALIVE_LOOKS == 0:
            yield ": still here\n\n"
        await asyncio.sleep(LOOK_SECONDS)


def _sample(judging: Judging, name: str, given: str, answer: str) -> dict[str, str]:
    def shown(digest: str) -> str:
        return judging.store.get(digest)[:SAMPLE_BYTES_MAX].decode("utf-8", "replace")

    return {"name": name, "input": shown(given), "answer": shown(answer)}
