"""What every page of a contest has: its parts, what is new, and how long it lasts."""

from __future__ import annotations

from typing import Any

from fastapi import Request

from fencepost_judge import _contests as contests
from fencepost_judge._contest_api import seen_contest
from fencepost_judge._contests import SeenContest
from fencepost_judge._role import JudgeRole, JudgeVisitor
from fencepost_judge.pages._page_router import PageRouter


async def contest_frame(router: PageRouter, request: Request, seen: SeenContest) -> dict[str, Any]:
    """`contest` without what the visitor may not know; `unread` questions, answers and announcements; when it
    `ends` for the visitor's team."""
    who: JudgeVisitor | None = request.state.visitor
    unread, team = 0, None
    if who is not None:
        team = await router.fp.run(contests.team_of(seen.contest.slug, who.name))
        is_jury = who.may(JudgeRole.JURY)
        news = await router.fp.run(contests.news(seen.contest.slug, who.name, is_jury=is_jury))
        unread = len(news.unread)
    ends = seen.contest.ends_for(team)
    return {"seen": seen, "contest": seen_contest(seen, who), "unread": unread, "ends": ends}
