"""Custom runs over HTTP: run a program on an input of the caller's own, or check whether it compiles."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import Field

from fencepost.errors import InvalidInput
from fencepost_judge import _visibility as visibility
from fencepost_judge._access import INPUT_BYTES_MAX
from fencepost_judge._authentication import Who, author_of
from fencepost_judge._problem import ANSWERS
from fencepost_judge._program_request import ProgramRequest
from fencepost_judge._role import JudgeVisitor
from fencepost_judge._service import Judging
from fencepost_server.web.forms import Id


class CustomRunRequest(ProgramRequest):
    """A program and its input. Without an input the program is only compiled."""

    input: Annotated[str, Field(max_length=INPUT_BYTES_MAX)] | None = None


def add(router: APIRouter, judging: Judging) -> None:
    @router.post("/judge/api/custom-runs", status_code=202)
    async def try_out(request: CustomRunRequest, who: Who) -> dict[str, int]:
        return {"job_id": await try_as(who, judging, request)}

    @router.get("/judge/api/custom-runs/{job_id}")
    async def custom_run(job_id: Id, who: Who) -> dict[str, Any]:
        """The outcome of a custom run; 404 when it has expired or belongs to another user."""
        found = await visibility.custom_run(judging, who, job_id)
        return {
            "job_id": found.job_id,
            "language": found.language,
            "status": "FINISHED" if found.outcome else "PENDING",
            "expires_at": found.expires_at,
            "outcome": found.outcome,
        }


async def try_as(who: JudgeVisitor, judging: Judging, request: CustomRunRequest) -> int:
    files = request.files()
    if request.language == ANSWERS:
        raise InvalidInput("Answers are not run. Submit them.", field="language")
    judging.check_program(request.language, files)
    return await judging.custom_runs.submit(
        request.language,
        files,
        request.input,
        author=author_of(who, None),
        allowance=judging.allowance(who.name) if who.is_limited else None,
    )
