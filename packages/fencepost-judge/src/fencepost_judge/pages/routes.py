"""Every page of the judge."""

from __future__ import annotations

from fastapi import APIRouter

from fencepost_judge import authentication as entrances
from fencepost_judge.access import OPEN_PAGES, PAGES
from fencepost_judge.authentication import Authentication
from fencepost_judge.pages import (
    accounts,
    contests,
    custom_runs,
    imports,
    login,
    problems,
    rejudgings,
    submissions,
    workers,
)
from fencepost_judge.pages.page_router import PageRouter
from fencepost_judge.pages.page_sessions import PageSessions
from fencepost_judge.service import Judging
from fencepost_server.accounts.passwords import Passwords


def make_pages(
    judging: Judging, *, app_token: str | None = None, passwords: Passwords | None = None
) -> APIRouter:
    """The pages in the access table, and those that are open to all."""
    auth = Authentication(judging.fp, app_token=app_token, source_max_bytes=judging.settings.source_max_bytes)
    router = PageRouter(judging, PageSessions(judging.fp, auth, judging.settings))
    passwords = passwords or Passwords()
    for module in (problems, submissions, custom_runs, contests, rejudgings, imports, workers):
        module.add(router)
    for module in (login, accounts):
        module.add(router, passwords)
    assert entrances.lines_of(router.router) == set(PAGES) | OPEN_PAGES, "a line of the table has no page"
    return router.router
