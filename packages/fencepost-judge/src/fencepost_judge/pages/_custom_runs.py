"""Custom runs: a run on the visitor's own input; the submit form keeps the program."""

from __future__ import annotations

from fastapi import Request, Response
from fastapi.responses import RedirectResponse

from fencepost.errors import FencepostError
from fencepost_judge import _visibility as visibility
from fencepost_judge._access import PAGES_ROOT
from fencepost_judge._authentication import Who
from fencepost_judge._custom_run_api import CustomRunRequest, try_as
from fencepost_judge._problem import Slug
from fencepost_judge.pages._page_router import PageRouter
from fencepost_judge.pages._page_sessions import form_of
from fencepost_judge.pages._problems import show_problem
from fencepost_judge.pages._submit_form import SubmitForm, offered, only_source, sent
from fencepost_server.web.formatting import link
from fencepost_server.web.forms import Id, filled
from fencepost_server.web.templating import HEADERS


def add(router: PageRouter) -> None:
    @router.router.post(f"{PAGES_ROOT}/custom-runs")
    async def try_out(request: Request, who: Who) -> Response:
        fields = sent(await form_of(request))
        slug, contest = fields.get("problem_id", ""), fields.get("contest") or None
        try:
            # An empty input is an input: a program that reads nothing is run too.
            wanted = filled(CustomRunRequest, fields).model_copy(update={"input": fields.get("input", "")})
            job_id = await try_as(who, router.judging, wanted)
        except FencepostError as error:
            bench = {name: fields.get(name, "") for name in ("language", "code", "input")}
            return await show_problem(router, request, slug, {**bench, "contest": contest}, error)
        target = link(f"{PAGES_ROOT}/custom-runs/{job_id}", problem=slug, contest=contest)
        return RedirectResponse(target, 303, headers=dict(HEADERS))

    @router.router.get(f"{PAGES_ROOT}/custom-runs/{{job_id}}")
    async def custom_run(
        request: Request, who: Who, job_id: Id, problem: Slug | None = None, contest: Slug | None = None
    ) -> Response:
        found = await visibility.custom_run(router.judging, who, job_id)
        bench = SubmitForm(
            problem=problem,
            contest=contest,
            language=found.language,
            code=only_source(found.sources),
            input=found.input or "",
            languages=offered(router.judging),
        )
        facts = {"run": found, "outcome": found.outcome, "bench": bench}
        return router.show(request, "custom_run.html", "A custom run", facts)
