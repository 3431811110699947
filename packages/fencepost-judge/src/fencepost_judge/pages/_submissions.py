"""Submissions: send one, watch its verdict arrive, and list earlier ones."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import Query, Request, Response

from fencepost.errors import FencepostError
from fencepost_judge import _contests as contests
from fencepost_judge import _judge_calls as judge_calls
from fencepost_judge import _jury as jury
from fencepost_judge import _visibility as visibility
from fencepost_judge._access import PAGES_ROOT
from fencepost_judge._api import SubmitRequest, submit_as
from fencepost_judge._authentication import Who, author_of
from fencepost_judge._difference import difference
from fencepost_judge._problem import Problem, Slug
from fencepost_judge._role import JudgeRole, JudgeVisitor
from fencepost_judge._scoreboard import Feedback
from fencepost_judge._store import CorruptData, StoreUnavailable
from fencepost_judge._submission_watch import EventStream
from fencepost_judge.pages._page_router import PageRouter
from fencepost_judge.pages._page_sessions import form_of
from fencepost_judge.pages._problems import show_problem
from fencepost_judge.pages._submit_form import sent
from fencepost_server.web.formatting import link
from fencepost_server.web.forms import Id, filled
from fencepost_server.web.questions import Confirmation
from fencepost_server.web.templating import HEADERS

PAGE_ROWS = 50
KEY_MAX = 100
ANSWER_BYTES_MAX = 4096
"""As much of an answer is compared with an output as is stored of that."""
STREAM_SECONDS = 300.0
"""After this time the browser reconnects, and is authenticated again."""
Author = Annotated[str | None, Query(max_length=100, pattern=r"^[^\x00]*$")]


def add(router: PageRouter) -> None:
    _add_sending(router)
    _add_reading(router)


def _add_sending(router: PageRouter) -> None:
    @router.router.post(f"{PAGES_ROOT}/submissions")
    async def submit(request: Request, who: Who) -> Response:
        """A refused form is shown again with the program, so that it is not lost."""
        fields = sent(await form_of(request))
        try:
            wanted = filled(SubmitRequest, fields)
            job_id = await submit_as(who, router.judging, wanted, _key(fields))
        except FencepostError as error:
            bench = {name: fields.get(name, "") for name in ("language", "code", "input")}
            contest = fields.get("contest") or None
            slug = fields.get("problem_id", "")
            return await show_problem(router, request, slug, {**bench, "contest": contest}, error)
        place = link(f"{PAGES_ROOT}/submissions/{job_id}", contest=wanted.contest)
        return router.done(request, place, f"Submission {job_id} is sent.")


def _add_reading(router: PageRouter) -> None:
    judging = router.judging

    @router.router.get(f"{PAGES_ROOT}/submissions")
    async def history(
        request: Request, who: Who, author: Author = None, before: Id | None = None
    ) -> Response:
        """The visitor's own submissions; a jury sees those of all authors, or of the one it names."""
        rows: list[Any]
        if who.may(JudgeRole.JURY) and not author:
            rows = await router.fp.run(judge_calls.get_recent(before, PAGE_ROWS))
        else:
            author = author_of(who, author or None)
            rows = list(await visibility.history(judging, who, author, before, PAGE_ROWS))
        further = rows[-1].job_id if len(rows) == PAGE_ROWS else None
        facts = {"rows": rows, "further": further, "author": author}
        return router.show(request, "submissions.html", "Submissions", facts)

    @router.router.get(f"{PAGES_ROOT}/submissions/{{job_id}}")
    async def submission(request: Request, who: Who, job_id: Id, contest: Slug | None = None) -> Response:
        found = await visibility.standing(judging, who, job_id)
        task = (await router.fp.run(judge_calls.get_task(job_id)))[0]
        status = visibility.as_json(found, who)
        facts = {
            "standing": found,
            "status": status,
            "is_over": status["status"] in visibility.OVER,
            "sources": task.sources,
            "problem": task.problem,
            "contest": contest or found.contest,
            "may_play": await _may_play(found, who),
            "dossier": await _dossier(job_id, who),
            "interactive": task.problem.interactive,
            "shown_outputs": await _outputs(found, task.problem, who),
        }
        return router.show(request, "submission.html", f"Submission {job_id}", facts)

    async def _dossier(job_id: int, who: JudgeVisitor) -> jury.Dossier | None:
        if not who.may(JudgeRole.JURY):
            return None
        found: jury.Dossier = await router.fp.run(jury.dossier(job_id))
        return found

    async def _outputs(
        found: judge_calls.SubmissionStanding, problem: Problem, who: JudgeVisitor
    ) -> list[dict[str, Any]]:
        """The stored outputs of failed tests with what differs, for juries."""
        if not who.may(JudgeRole.JURY) or not found.result:
            return []
        cases = {case.name: case for case in problem.data.all_cases()}
        shown = list[dict[str, Any]]()
        for one in found.result["cases"]:
            if not one.get("output") or one["name"] not in cases:
                continue
            try:
                answer = await asyncio.to_thread(judging.store.get, cases[one["name"]].answer)
            except (StoreUnavailable, CorruptData, FileNotFoundError):
                # The page is shown without what differs: the output is in the database.
                answer = b""
            same = difference(answer[:ANSWER_BYTES_MAX].decode("utf-8", "replace"), one["output"])
            shown.append({"name": one["name"], "output": one["output"], "difference": same if answer else []})
        return shown

    async def _may_play(found: judge_calls.SubmissionStanding, who: JudgeVisitor) -> bool:
        """Whether a token would show more of it, and there is one."""
        if found.contest is None or found.feedback is Feedback.FULL or who.may(JudgeRole.JURY):
            return False
        return (await router.fp.run(contests.tokens_left(found.contest, who.name)) or 0) > 0

    @router.router.post(f"{PAGES_ROOT}/submissions/{{job_id}}/token")
    async def play(request: Request, who: Who, job_id: Id) -> Response:
        place = f"{PAGES_ROOT}/submissions/{job_id}"
        told = ["Your team sees all of its verdict, and has one token fewer. A token does not come back."]
        question = Confirmation(f"Play a token on submission {job_id}?", told, "Play it", place)
        if (asked := await router.ask(request, question)) is not None:
            return asked
        left = await router.fp.run(contests.play_token(job_id, who.name))
        return router.done(request, place, f"Tokens left: {left}.")

    @router.router.get(f"{PAGES_ROOT}/submissions/{{job_id}}/events")
    async def events(who: Who, job_id: Id) -> Response:
        await visibility.standing(judging, who, job_id)
        end = judging.streams.begin(who.name if who.is_user else "")
        events = visibility.events(judging, who, job_id, lifetime_seconds=STREAM_SECONDS)
        return EventStream(events, end, {**HEADERS, "X-Accel-Buffering": "no"})


def _key(fields: Mapping[str, str]) -> str | None:
    """A form that is sent twice is one submission; after going back and changing it, it is another."""
    given = fields.get("key", "")[:KEY_MAX]
    content = "\0".join(fields.get(name, "") for name in ("problem_id", "contest", "language", "code"))
    return f"{given}-{hashlib.sha256(content.encode()).hexdigest()}" if given else None
