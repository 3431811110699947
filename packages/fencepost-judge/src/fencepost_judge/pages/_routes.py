"""Every page of the judge."""

from __future__ import annotations

from fastapi import APIRouter

from fencepost_judge import _authentication as authentication
from fencepost_judge._access import OPEN_PAGES, PAGES
from fencepost_judge._authentication import Authentication
from fencepost_judge._service import Judging
from fencepost_judge.pages import (
    _accounts as accounts,
)
from fencepost_judge.pages import (
    _contests as contests,
)
from fencepost_judge.pages import (
    _custom_runs as custom_runs,
)
from fencepost_judge.pages import (
    _imports as imports,
)
from fencepost_judge.pages import (
    _jury as jury,
)
from fencepost_judge.pages import (
    _login as login,
)
from fencepost_judge.pages import (
    _problems as problems,
)
from fencepost_judge.pages import (
    _rejudgings as rejudgings,
)
from fencepost_judge.pages import (
    _sample_runs as sample_runs,
)
from fencepost_judge.pages import (
    _submissions as submissions,
)
from fencepost_judge.pages import (
    _teams as teams,
)
from fencepost_judge.pages import (
    _verifications as verifications,
)
from fencepost_judge.pages import (
    _workers as workers,
)
from fencepost_judge.pages._page_router import PageRouter
from fencepost_judge.pages._page_sessions import PageSessions
from fencepost_server.accounts.passwords import Passwords


def make_pages(
    judging: Judging, *, app_token: str | None = None, passwords: Passwords | None = None
) -> APIRouter:
    """The pages in the access table, and those that are open to all."""
    auth = Authentication(judging.fp, app_token=app_token, source_max_bytes=judging.settings.source_max_bytes)
    router = PageRouter(judging, PageSessions(judging.fp, auth, judging.settings))
    passwords = passwords or Passwords()
    for module in (
        problems,
        submissions,
        custom_runs,
        sample_runs,
        contests,
        jury,
        rejudgings,
        imports,
        verifications,
        workers,
    ):
        module.add(router)
    for module in (login, accounts, teams):
        module.add(router, passwords)
    assert authentication.lines_of(router.router) == set(PAGES) | OPEN_PAGES, "an access rule has no page"
    return router.router
