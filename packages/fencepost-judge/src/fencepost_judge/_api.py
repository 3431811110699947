"""The judge over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterable
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from fencepost.errors import FencepostError
from fencepost_judge import (
    _accounts_api as accounts_api,
)
from fencepost_judge import (
    _authentication as authentication,
)
from fencepost_judge import (
    _contest_api as contest_api,
)
from fencepost_judge import (
    _custom_run_api as custom_run_api,
)
from fencepost_judge import (
    _judge_calls as judge_calls,
)
from fencepost_judge import (
    _jury_api as jury_api,
)
from fencepost_judge import (
    _rejudge_api as rejudge_api,
)
from fencepost_judge import (
    _verification_api as verification_api,
)
from fencepost_judge import (
    _visibility as visibility,
)
from fencepost_judge import (
    _worker_api as worker_api,
)
from fencepost_judge._access import ACCESS
from fencepost_judge._authentication import Authentication, Who, author_of, told_to
from fencepost_judge._judge_calls import PastSubmission, ProblemTitle
from fencepost_judge._problem import Slug
from fencepost_judge._program_request import ProgramRequest
from fencepost_judge._role import JudgeRole, JudgeVisitor
from fencepost_judge._service import Judging
from fencepost_judge._submission_watch import EventStream
from fencepost_judge._uploads import stored_zip
from fencepost_judge._visibility import as_json
from fencepost_server.web.errors import status_of
from fencepost_server.web.forms import Id

Limit = Annotated[int, Query(ge=1, le=200)]
TimeLimit = Annotated[float, Query(ge=0.01, le=600)]
BATCH_MAX = 20
BATCH_STATUS_MAX = 100
WAIT_SECONDS = 15.0
WAIT_SECONDS_MAX = 60.0
WaitSeconds = Annotated[float, Query(alias="timeout", ge=0, le=WAIT_SECONDS_MAX)]
JobIds = Annotated[str, Query(max_length=2000, pattern=r"^\d{1,18}(,\d{1,18})*$")]
Key = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=200)]


class SubmitRequest(ProgramRequest):
    """A program for a problem."""

    problem_id: Slug
    contest: Slug | None = None
    author: Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f]+$")] | None = None


class BatchRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    submissions: Annotated[list[SubmitRequest], Field(min_length=1, max_length=BATCH_MAX)]


class SubmitAnswer(BaseModel):
    job_id: int


def make_router(judging: Judging, *, app_token: str | None = None) -> APIRouter:
    """Every route in the table of `_access.py`, and no other."""
    auth = Authentication(judging.fp, app_token=app_token, source_max_bytes=judging.settings.source_max_bytes)
    router = authentication.make_router(auth)
    _add_submissions(router, judging)
    _add_problems(router, judging)
    for module in (
        accounts_api,
        rejudge_api,
        contest_api,
        jury_api,
        custom_run_api,
        verification_api,
        worker_api,
    ):
        module.add(router, judging)
    assert authentication.lines_of(router) == set(ACCESS), "an access rule has no route"
    return router


def _add_submissions(router: APIRouter, judging: Judging) -> None:
    @router.post("/submit", status_code=202, response_model=None)
    async def submit(
        request: SubmitRequest,
        who: Who,
        response: Response,
        key: Key = None,
        wait: bool = False,
        wait_seconds: WaitSeconds = WAIT_SECONDS,
    ) -> SubmitAnswer | dict[str, Any]:
        """Submit a program. Repeating a request with the same Idempotency-Key and body returns the same
        job.

        With `wait` the answer is the state of the submission, 200, once it has its verdict; 202 when that
        takes longer than `timeout` seconds, and then `GET /status/{job_id}` says how it ends.
        """
        job_id = await submit_as(who, judging, request, key)
        if not wait:
            return SubmitAnswer(job_id=job_id)
        found = await visibility.at_last(judging, who, job_id, within_seconds=wait_seconds)
        response.status_code = 200 if found["status"] in visibility.OVER else 202
        return found

    @router.post("/submit/batch", status_code=202)
    async def submit_batch(request: BatchRequest, who: Who, key: Key = None) -> list[dict[str, Any]]:
        """Submit up to 20 programs. Each is submitted by itself: the answer has, in their order, a job or the
        reason of its refusal. With an Idempotency-Key, a repeat returns the same jobs and submits those that
        were refused."""
        answers = list[dict[str, Any]]()
        for place, one in enumerate(request.submissions):
            try:
                own = None if key is None else f"{key}#{place}"
                answers.append({"job_id": await submit_as(who, judging, one, own)})
            except FencepostError as error:
                told = told_to(who, error)
                answers.append({"error": {"status": status_of(told)[0], "message": str(told)}})
        return answers

    @router.get("/status")
    async def statuses(job_ids: JobIds, who: Who) -> list[dict[str, Any]]:
        """The states of up to 100 submissions, named with commas. Those that are not there for the caller
        are left out."""
        numbers = [int(one) for one in job_ids.split(",")][:BATCH_STATUS_MAX]
        found = {one.job_id: one for one in await judging.fp.run(judge_calls.get_standings(numbers))}
        seen = [found[number] for number in numbers if number in found]
        return [as_json(one, who) for one in seen if who.sees(one.author)]

    @router.get("/status/{job_id}")
    async def status(job_id: Id, who: Who) -> dict[str, Any]:
        """The state of a submission: its state, its attempt, and its result when there is one."""
        return as_json(await visibility.standing(judging, who, job_id), who)

    @router.get("/status/{job_id}/events")
    async def events(job_id: Id, who: Who) -> EventStream:
        """The same as server-sent events: one immediately, one for each change, the last with the verdict."""
        await visibility.standing(judging, who, job_id)
        end = judging.streams.begin(who.name if who.is_user else "")
        return EventStream(visibility.events(judging, who, job_id), end, {"Cache-Control": "no-store"})

    @router.get("/submissions")
    async def history(
        who: Who,
        author: Annotated[str | None, Query(min_length=1, max_length=100)] = None,
        before: Id | None = None,
        limit: Limit = 50,
    ) -> list[dict[str, Any]]:
        """The submissions of one author, newest first. The author is the visitor unless another one is
        named."""
        past = await visibility.history(judging, who, author_of(who, author), before, limit)
        names = [name for name in PastSubmission.__slots__ if name != "figures"]
        return [{name: getattr(one, name) for name in names} for one in past]

    @router.get("/languages")
    async def languages() -> list[str]:
        return judging.languages


def _add_problems(router: APIRouter, judging: Judging) -> None:
    @router.get("/problems")
    async def problems(who: Who, after: str | None = None, limit: Limit = 100) -> list[dict[str, Any]]:
        """Titles by slug. Returns fewer than `limit` when some problems belong to a contest that has not
        begun."""
        found, _ = await visibility.problems(judging, who, after, limit)
        return [asdict(one) for one in found]

    @router.get("/problems/{slug}")
    async def problem(slug: str, who: Who) -> dict[str, Any]:
        """The statement, the limits and the samples; never the secret data."""
        found = await visibility.problem(judging, who, slug)
        return {
            "slug": found.slug,
            "version": found.version,
            "title": found.title,
            "statement": found.problem.statement,
            "time_ms": found.problem.bounds.time_ms,
            "timing": found.problem.timing.model_dump() if who.may(JudgeRole.JURY) else None,
            "languages": found.problem.languages,
            "attachments": sorted(found.problem.attachments),
            "statements": [one.name for one in found.problem.statements],
            "memory_kb": found.problem.bounds.memory_kb,
            "scoring": found.problem.scoring,
            "interactive": found.problem.interactive,
            "samples": [asdict(one) for one in await visibility.samples(judging, found)],
        }

    @router.get("/problems/{slug}/attachments/{name}")
    async def attachment(slug: str, name: str, who: Who) -> Response:
        """A file that the package makes available to contestants."""
        return await visibility.attachment(judging, who, slug, name)

    @router.get("/problems/{slug}/statements/{name}")
    async def statement(slug: str, name: str, who: Who) -> Response:
        """A statement as its author wrote it, by its language and form, such as `en.pdf`."""
        return await visibility.statement(judging, who, slug, name)

    @router.put("/problems/{slug}")
    async def put_problem(
        slug: Slug, request: Request, time_limit: TimeLimit | None = None
    ) -> dict[str, Any]:
        """Import a package: the body is its zip. `time_limit`, in seconds, overrides the package's."""
        return asdict(await import_zip(judging, request.stream(), slug, time_limit))


async def submit_as(who: JudgeVisitor, judging: Judging, request: SubmitRequest, key: str | None) -> int:
    """Submit for the named author, if the visitor may do so."""
    if not who.may(JudgeRole.JURY):
        await judging.check_shown(request.problem_id)
    return await judging.submit(
        request.problem_id,
        request.language,
        request.files(),
        author=author_of(who, request.author),
        contest=request.contest,
        key=key,
        limited=who.is_limited,
    )


async def import_zip(
    judging: Judging,
    parts: AsyncIterable[bytes],
    slug: str | None,
    time_limit_seconds: float | None = None,
) -> ProblemTitle:
    """Import a package from the parts of its zip: it is never whole in memory."""
    async with stored_zip(parts) as place:
        return await judging.import_problem(place, slug=slug, time_limit_seconds=time_limit_seconds)
