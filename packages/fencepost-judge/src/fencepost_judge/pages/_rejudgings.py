"""Rejudging: preview the selection, judge beside the standing results, compare, then apply or drop."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Request, Response
from pydantic import BaseModel, BeforeValidator

from fencepost.errors import InvalidInput
from fencepost_judge import _rejudging as rejudging
from fencepost_judge._access import PAGES_ROOT
from fencepost_judge._authentication import Who
from fencepost_judge._rejudge_api import RejudgeRequest, find
from fencepost_judge._service import REJUDGE_MAX
from fencepost_judge.pages._page_router import PageRouter
from fencepost_judge.pages._page_sessions import form_of
from fencepost_server.web.forms import Id, filled

PAGE_ROWS = 50
CHANGES_MAX = 1000
HOME = f"{PAGES_ROOT}/rejudgings"


def _unless_empty(value: object) -> object:
    """A form sends every field; an empty one counts as missing."""
    return None if value == "" else value


Word = Annotated[str | None, BeforeValidator(_unless_empty)]


class RejudgeForm(BaseModel):
    """As in the API; submissions are ids separated by spaces or commas."""

    submissions: Word = None
    problem_id: Word = None
    author: Word = None
    language: Word = None
    verdict: Word = None
    reason: Word = None

    def wanted(self) -> RejudgeRequest:
        fields: dict[str, Any] = self.model_dump(exclude_none=True)
        if self.submissions is not None:
            fields["submissions"] = self.submissions.replace(",", " ").split()
        return filled(RejudgeRequest, fields)


def add(router: PageRouter) -> None:
    _add_choosing(router)
    _add_deciding(router)


def _add_choosing(router: PageRouter) -> None:
    fp = router.fp

    @router.router.get(HOME)
    async def rejudgings(request: Request, before: Id | None = None) -> Response:
        found = await fp.run(rejudging.generations(before=before, limit=PAGE_ROWS))
        further = found[-1].generation if len(found) == PAGE_ROWS else None
        facts = {"generations": found, "further": further, "languages": router.judging.languages}
        return router.show(request, "rejudgings.html", "Rejudgings", facts)

    @router.router.get(f"{PAGES_ROOT}/rejudge")
    async def preview(request: Request, query: Annotated[RejudgeForm, Query()]) -> Response:
        """How many submissions are selected. Changes nothing."""
        wanted = query.wanted()
        meant = await fp.run(rejudging.find(wanted.filter(), REJUDGE_MAX + 1))
        if len(meant) > REJUDGE_MAX:
            raise InvalidInput(f"More than {REJUDGE_MAX} submissions match; select fewer.", field="filter")
        terms = query.model_dump(exclude_none=True)
        facts = {"count": len(meant), "first": meant[:20], "terms": terms, "reason": wanted.reason}
        return router.show(request, "rejudge.html", "Judge again?", facts)

    @router.router.post(HOME)
    async def rejudge(request: Request, who: Who) -> Response:
        wanted = filled(RejudgeForm, await form_of(request)).wanted()
        opened = await router.judging.rejudge(wanted.filter(), reason=wanted.reason, actor=who.name)
        told = f"{opened.submissions} submissions are judged again. Nothing changes until you apply it."
        return router.done(request, f"{HOME}/{opened.generation}", told)


def _add_deciding(router: PageRouter) -> None:
    fp = router.fp

    @router.router.get(f"{HOME}/{{generation}}")
    async def generation_page(
        request: Request, generation: Id, everything: bool = False, after: Id | None = None
    ) -> Response:
        found = await fp.run(
            rejudging.changes(generation, changed=not everything, after=after, limit=CHANGES_MAX)
        )
        facts = {
            "generation": await find(fp, generation),
            "changes": found,
            "everything": everything,
            "further": found[-1].submission_id if len(found) == CHANGES_MAX else None,
        }
        return router.show(request, "rejudging.html", f"Rejudging {generation}", facts)

    @router.router.post(f"{HOME}/{{generation}}/apply")
    async def apply(request: Request, who: Who, generation: Id) -> Response:
        replaced = await fp.run(rejudging.apply(generation, who.name))
        return router.done(request, f"{HOME}/{generation}", f"It stands: {replaced} results were replaced.")

    @router.router.post(f"{HOME}/{{generation}}/drop")
    async def drop(request: Request, who: Who, generation: Id) -> Response:
        await fp.run(rejudging.drop(generation, who.name))
        return router.done(
            request, f"{HOME}/{generation}", "The rejudging is dropped. The standing verdicts stay."
        )
