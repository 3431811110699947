"""Rejudging: preview the selection, judge beside the standing results, compare, then apply or drop."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Request, Response
from pydantic import BaseModel, BeforeValidator

from fencepost.client import Fencepost
from fencepost.errors import InvalidInput
from fencepost_judge import _contests as contests
from fencepost_judge import _rejudging as rejudging
from fencepost_judge import _teams as teams
from fencepost_judge import _visibility as visibility
from fencepost_judge._access import PAGES_ROOT
from fencepost_judge._authentication import Who
from fencepost_judge._rejudge_api import RejudgeRequest, find
from fencepost_judge._scoreboard import ScoreboardRow, scoreboard
from fencepost_judge._service import REJUDGE_MAX
from fencepost_judge.pages._page_router import PageRouter
from fencepost_judge.pages._page_sessions import form_of
from fencepost_server.web.forms import Id, filled
from fencepost_server.web.questions import Comparison, Confirmation, counted

PAGE_ROWS = 50
CHANGES_MAX = 1000
CONTESTS_MAX = 5
TEAMS_MAX = 50
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
        question = await _before_apply(fp, who, generation)
        if (asked := await router.ask(request, question)) is not None:
            return asked
        replaced = await fp.run(rejudging.apply(generation, who.name))
        return router.done(request, f"{HOME}/{generation}", f"It stands: {replaced} results were replaced.")

    @router.router.post(f"{HOME}/{{generation}}/drop")
    async def drop(request: Request, who: Who, generation: Id) -> Response:
        told = ["What it judged is discarded. The standing verdicts stay."]
        question = Confirmation(f"Drop rejudging {generation}?", told, "Drop it", f"{HOME}/{generation}")
        if (asked := await router.ask(request, question)) is not None:
            return asked
        await fp.run(rejudging.drop(generation, who.name))
        return router.done(
            request, f"{HOME}/{generation}", "The rejudging is dropped. The standing verdicts stay."
        )


async def _before_apply(fp: Fencepost, who: Who, generation: int) -> Confirmation:
    """What it changes: results, and the standings of each contest before and after."""
    changed = await fp.run(rejudging.changes(generation, limit=CHANGES_MAX))
    more = "or more " if len(changed) == CHANGES_MAX else ""
    told = [
        f"{counted(len(changed), 'result')} {more}of rejudging {generation} become the standing ones.",
        "It cannot be taken back, except by another rejudging.",
    ]
    slugs = await fp.run(rejudging.contests_of(generation))
    compared = [await _standings(fp, who, generation, slug) for slug in slugs[:CONTESTS_MAX]]
    if len(slugs) > CONTESTS_MAX:
        told.append(f"The standings of {len(slugs) - CONTESTS_MAX:,} more contests may change.")
    told += [f"{one.title}: no place changes." for one in compared if not one.rows]
    shown = [one for one in compared if one.rows]
    return Confirmation(f"Apply rejudging {generation}?", told, "Apply it", f"{HOME}/{generation}", shown)


async def _standings(fp: Fencepost, who: Who, generation: int, slug: str) -> Comparison:
    """The teams whose line changes, as a jury sees it."""
    now = await visibility.board(fp, who, slug)
    entrants = [one.entrant for one in await fp.run(teams.teams(slug))]
    entries = await fp.run(contests.rejudged_entries(generation, slug))
    after = {
        one.team_id: one for one in scoreboard(now.contest, entrants, entries, now.moment, sees_all=True)
    }
    rows = [
        (line.name, _place(line), _place(after[line.team_id]))
        for line in now.lines
        if line.team_id in after and _place(line) != _place(after[line.team_id])
    ]
    return Comparison(f"Standings of {now.contest.title}", ("team", "now", "after it"), rows[:TEAMS_MAX])


def _place(line: ScoreboardRow) -> str:
    rank = "not ranked" if line.rank is None else f"place {line.rank}"
    if line.points is not None:
        return f"{rank}, {line.points:g} points"
    return f"{rank}, {line.solved} solved, {line.penalty} minutes"
