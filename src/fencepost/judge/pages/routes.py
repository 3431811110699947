"""Every page, and nothing else."""

from __future__ import annotations

from fastapi import APIRouter

from fencepost.judge import doors as entrances
from fencepost.judge.access import OPEN_PAGES, PAGES
from fencepost.judge.doors import Doors
from fencepost.judge.pages import (
    contests,
    entrance,
    imports,
    people,
    problems,
    rejudgings,
    submissions,
    trials,
    workers,
)
from fencepost.judge.pages.desk import Desk
from fencepost.judge.pages.reception import Reception
from fencepost.judge.service import Judging
from fencepost.web.passwords import Passwords


def make_pages(
    judging: Judging, *, house_token: str | None = None, passwords: Passwords | None = None
) -> APIRouter:
    """What the table of pages names, and what is open to all."""
    doors = Doors(judging.fp, house_token=house_token, source_max_bytes=judging.settings.source_max_bytes)
    desk = Desk(judging, Reception(judging.fp, doors, judging.settings))
    passwords = passwords or Passwords()
    for module in (problems, submissions, trials, contests, rejudgings, imports, workers):
        module.add(desk)
    for module in (entrance, people):
        module.add(desk, passwords)
    assert entrances.lines_of(desk.router) == set(PAGES) | OPEN_PAGES, "a line of the table has no page"
    return desk.router
