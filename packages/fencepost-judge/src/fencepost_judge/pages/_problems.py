"""Problems: the list, and a statement with its submit form."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import Query, Request, Response

from fencepost.errors import FencepostError, NotFound
from fencepost_judge import _contests as contests
from fencepost_judge import _judge_calls as judge_calls
from fencepost_judge import _jury as jury
from fencepost_judge import _visibility as visibility
from fencepost_judge._access import PAGES_ROOT
from fencepost_judge._answers import stems
from fencepost_judge._authentication import Who, author_of, told_to
from fencepost_judge._contest_api import seen_contest
from fencepost_judge._judge_calls import StoredProblem
from fencepost_judge._problem import Problem, Slug, Timing
from fencepost_judge._role import JudgeRole, JudgeVisitor
from fencepost_judge._service import Judging
from fencepost_judge.packages._tex import markdown_of
from fencepost_judge.pages import _statement as markdown
from fencepost_judge.pages._contest_frame import contest_frame
from fencepost_judge.pages._html_statement import render_html
from fencepost_judge.pages._page_router import PageRouter
from fencepost_judge.pages._submit_form import SubmitForm, offered, only_source
from fencepost_server.web.errors import status_of
from fencepost_server.web.forms import Id

PAGE_ROWS = 100
CONTESTS_MAX = 200


def add(router: PageRouter) -> None:
    @router.router.get(PAGES_ROOT)
    async def problems(request: Request, who: Who, after: str | None = None) -> Response:
        found, further = await visibility.problems(router.judging, who, after, PAGE_ROWS)
        open_now = [
            seen_contest(one, who)
            for one in await router.fp.run(contests.contests(limit=CONTESTS_MAX))
            if one.has_begun and not one.is_over
        ]
        slugs = [one.slug for one in found]
        marks = await router.fp.run(jury.own_marks(author_of(who, None), slugs))
        known = await router.fp.run(jury.statistics(slugs))
        facts = {
            "problems": found,
            "further": further,
            "contests": open_now,
            "marks": marks,
            "statistics": {one.slug: one for one in known},
        }
        return router.show(request, "problems.html", "Problems", facts)

    @router.router.get(f"{PAGES_ROOT}/problems/{{slug}}")
    async def problem(
        request: Request,
        who: Who,
        slug: str,
        contest: Slug | None = None,
        statement: Annotated[str | None, Query(max_length=60)] = None,
        origin: Annotated[Id | None, Query(alias="from")] = None,
    ) -> Response:
        """`from` is a submission whose program fills the form."""
        begun = await _beginning(router, who, origin)
        return await show_problem(router, request, slug, {"contest": contest, **begun}, wanted=statement)

    @router.router.get(f"{PAGES_ROOT}/problems/{{slug}}/attachments/{{name}}")
    async def attachment(who: Who, slug: str, name: str) -> Response:
        return await visibility.attachment(router.judging, who, slug, name)

    @router.router.get(f"{PAGES_ROOT}/problems/{{slug}}/statements/{{name}}")
    async def statement_file(who: Who, slug: str, name: str) -> Response:
        return await visibility.statement(router.judging, who, slug, name)


async def show_problem(
    router: PageRouter,
    request: Request,
    slug: str,
    bench: Mapping[str, Any],
    refused: FencepostError | None = None,
    wanted: str | None = None,
) -> Response:
    """The statement, in the form that is wanted; after a refused program, with the reason and what was
    written."""
    judging, who = router.judging, _visitor(request)
    found = await visibility.problem(judging, who, slug)
    contest = bench.get("contest")
    known = await router.fp.run(jury.statistics([slug]))
    marks = await router.fp.run(jury.own_marks(author_of(who, None), [slug]))
    in_contest = None if contest is None else await visibility.contest(router.fp, contest)
    facts = {
        "problem": found,
        **await _statement_of(judging, found, wanted),
        "timing": _timing(found.problem, who),
        "attachments": sorted(found.problem.attachments),
        "samples": await visibility.samples(judging, found),
        "answers": sorted(set(stems(found.problem).values())) if found.problem.takes_answers else [],
        "tests": sum(1 for _ in found.problem.data.all_cases()),
        "contest": in_contest,
        "frame": None if in_contest is None else await contest_frame(router, request, in_contest),
        "statistics": known[0] if known else None,
        "mark": marks.get(slug),
        "bench": SubmitForm(problem=slug, languages=offered(judging, found.problem.languages), **bench),
        "error_message": None if refused is None else str(told_to(who, refused)),
    }
    status = 200 if refused is None else status_of(refused)[0]
    return router.show(request, "problem.html", found.title, facts, status=status)


PAGE_FORMS = ("markdown", "tex", "html")
"""Forms that become a part of the page; the others are files."""


async def _statement_of(judging: Judging, found: StoredProblem, wanted: str | None) -> dict[str, Any]:
    """The statement that is shown, and the forms that there are."""
    files = found.problem.statements
    # The first language's, as it was stored; where that is neither Markdown nor TeX, its HTML.
    usual = next((one for one in files if one.format in PAGE_FORMS), None)
    shown = usual if wanted is None else visibility.statement_file(found, wanted)
    forms = [
        {"name": one.name, "is_shown": one is shown, "is_page": one.format in PAGE_FORMS} for one in files
    ]
    if shown is None or (wanted is None and found.problem.statement):
        usual_text = await asyncio.to_thread(markdown.render, found.problem.statement, found.title)
        return {"statement": usual_text, "forms": forms}
    if shown.format not in PAGE_FORMS:
        raise NotFound(f"{wanted} is a file.", noun="statement", subject=found.slug)
    content = (await asyncio.to_thread(judging.store.get, shown.content)).decode("utf-8", "replace")
    if shown.format == "html":
        return {"statement": await asyncio.to_thread(render_html, content), "forms": forms}
    text = markdown_of(content) if shown.format == "tex" else content
    return {"statement": await asyncio.to_thread(markdown.render, text, found.title), "forms": forms}


def _timing(problem: Problem, who: JudgeVisitor) -> Timing | None:
    """For juries only, and if the limit is not the package's: the names of solutions reveal typical
    mistakes."""
    return problem.timing if who.may(JudgeRole.JURY) and problem.timing.origin != "package" else None


async def _beginning(router: PageRouter, who: JudgeVisitor, origin: int | None) -> dict[str, str]:
    """The program of an older submission; otherwise an empty one in the language used last."""
    if origin is None:
        past = await router.judging.history(author_of(who, None), None, 1)
        return {"language": past[0].language} if past else {}
    found = await visibility.standing(router.judging, who, origin)
    task = (await router.fp.run(judge_calls.get_task(origin)))[0]
    return {"language": found.language, "code": only_source(task.sources)}


def _visitor(request: Request) -> JudgeVisitor:
    visitor: JudgeVisitor = request.state.visitor
    return visitor
