"""The work of a jury on pages: verdicts to verify, notes, balloons, the contest's clock, what was decided."""

from __future__ import annotations

from typing import Any

from fastapi import Request, Response

from fencepost_judge import _contests as contests
from fencepost_judge import _jury as jury
from fencepost_judge import _teams as teams
from fencepost_judge import _visibility as visibility
from fencepost_judge._access import PAGES_ROOT
from fencepost_judge._authentication import Who
from fencepost_judge._contest_api import IntervalRequest
from fencepost_judge._jury_api import (
    BalloonRequest,
    NoteRequest,
    Verification,
    archive_response,
    balloons_of,
)
from fencepost_judge.pages._contest_frame import contest_frame
from fencepost_judge.pages._contests import HOME, moment_of
from fencepost_judge.pages._page_router import PageRouter
from fencepost_judge.pages._page_sessions import form_of
from fencepost_server.web.forms import Id, filled, local_path
from fencepost_server.web.questions import Confirmation

PAGE_ROWS = 100
DECISIONS_MAX = 500


def add(router: PageRouter) -> None:
    _add_verifying(router)
    _add_balloons(router)
    _add_clock(router)


def _add_verifying(router: PageRouter) -> None:
    fp = router.fp

    @router.router.get(f"{HOME}/{{contest}}/unverified")
    async def unverified(request: Request, contest: str, after: Id | None = None) -> Response:
        seen = await visibility.contest(fp, contest)
        rows = await fp.run(jury.unverified(contest, after, PAGE_ROWS))
        facts = {
            **await contest_frame(router, request, seen),
            "rows": rows,
            "further": rows[-1].job_id if len(rows) == PAGE_ROWS else None,
            "labels": {one.slug: one.label for one in seen.contest.problems},
        }
        return router.show(request, "unverified.html", f"Verdicts of {seen.contest.title} to verify", facts)

    @router.router.post(f"{PAGES_ROOT}/submissions/{{job_id}}/verify")
    async def verify(request: Request, who: Who, job_id: Id) -> Response:
        """Verify the verdict that the form showed: one that changed meanwhile is refused."""
        fields: dict[str, Any] = dict(await form_of(request))
        wanted = filled(Verification, fields)
        by = await fp.run(jury.verify(job_id, wanted.generation, wanted.verdict, who.name))
        back = local_path(fields.get("back") or f"{PAGES_ROOT}/submissions/{job_id}", PAGES_ROOT)
        said = "is verified" if by == who.name else f"was verified by {by} already"
        return router.done(request, back, f"{wanted.verdict} of submission {job_id} {said}.")

    @router.router.post(f"{PAGES_ROOT}/submissions/{{job_id}}/notes")
    async def note(request: Request, who: Who, job_id: Id) -> Response:
        wanted = filled(NoteRequest, await form_of(request))
        await fp.run(jury.note(job_id, wanted.text, who.name))
        return router.done(request, f"{PAGES_ROOT}/submissions/{job_id}", "The note is kept.")


def _add_balloons(router: PageRouter) -> None:
    place = f"{HOME}/{{contest}}/balloons"

    @router.router.get(place)
    async def balloons(request: Request, who: Who, contest: str) -> Response:
        seen = await visibility.contest(router.fp, contest)
        found = await balloons_of(router.judging, who, contest)
        facts = {
            **await contest_frame(router, request, seen),
            "waiting": [one for one in found if one.delivered_by is None],
            "delivered": [one for one in found if one.delivered_by is not None],
        }
        return router.show(request, "balloons.html", f"Balloons of {seen.contest.title}", facts)

    @router.router.post(place)
    async def deliver(request: Request, who: Who, contest: str) -> Response:
        wanted = filled(BalloonRequest, await form_of(request))
        if not wanted.delivered:
            name = f"The balloon of {wanted.team} at {wanted.problem_id}"
            told = ["It is listed again among those to deliver."]
            question = Confirmation(
                f"{name} is not delivered?", told, "Not delivered", f"{HOME}/{contest}/balloons"
            )
            if (asked := await router.ask(request, question)) is not None:
                return asked
        by = await router.fp.run(
            jury.deliver(contest, wanted.team, wanted.problem_id, who.name, is_delivered=wanted.delivered)
        )
        said = f"was delivered by {by}" if by else "is not delivered"
        return router.done(
            request, f"{HOME}/{contest}/balloons", f"{wanted.team} at {wanted.problem_id}: {said}."
        )


def _add_clock(router: PageRouter) -> None:
    fp = router.fp

    @router.router.get(f"{HOME}/{{contest}}/clock")
    async def clock(request: Request, contest: str) -> Response:
        seen = await visibility.contest(fp, contest)
        facts = {
            **await contest_frame(router, request, seen),
            "teams": await fp.run(teams.teams(contest)),
            "decisions": await fp.run(jury.decisions(contest, DECISIONS_MAX)),
        }
        return router.show(request, "clock.html", f"Clock and decisions of {seen.contest.title}", facts)

    @router.router.post(f"{HOME}/{{contest}}/intervals")
    async def remove(request: Request, who: Who, contest: str) -> Response:
        fields: dict[str, Any] = dict(await form_of(request))
        for name in ("from_at", "until_at"):
            fields[name] = moment_of(name, fields.get(name, ""))
        wanted = filled(IntervalRequest, {**fields, "team": fields.get("team") or None})
        for_whom = f"team {wanted.team}" if wanted.team else "all teams"
        question = Confirmation(
            f"Remove {wanted.from_at:%H:%M:%S} to {wanted.until_at:%H:%M:%S} from {contest}, for {for_whom}?",
            [
                f"The contest ends {wanted.until_at - wanted.from_at} later for {for_whom}.",
                "Submissions since then have earlier times in the contest, and so other penalties.",
            ],
            "Remove the interval",
            f"{HOME}/{contest}/clock",
        )
        if (asked := await router.ask(request, question)) is not None:
            return asked
        await fp.run(contests.remove_interval(contest, **wanted.model_dump(), actor=who.name))
        return router.done(request, f"{HOME}/{contest}/clock", "The interval is removed.")

    @router.router.post(f"{HOME}/{{contest}}/intervals/{{interval_id}}/restore")
    async def restore(request: Request, who: Who, contest: str, interval_id: Id) -> Response:
        question = Confirmation(
            f"Let interval {interval_id} of {contest} count again?",
            ["The contest ends earlier by its length, and submissions since then have later times in it."],
            "Let it count",
            f"{HOME}/{contest}/clock",
        )
        if (asked := await router.ask(request, question)) is not None:
            return asked
        await fp.run(contests.restore_interval(contest, interval_id, who.name))
        return router.done(request, f"{HOME}/{contest}/clock", "The interval counts again.")

    @router.router.get(f"{HOME}/{{contest}}/archive")
    async def archive(who: Who, contest: str) -> Response:
        return await archive_response(router.judging, who, contest)
