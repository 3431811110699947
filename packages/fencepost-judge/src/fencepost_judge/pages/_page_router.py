"""Creates the routes of pages, each by its entry in the access table, and renders pages."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from fastapi.routing import APIRoute

from fencepost_judge._access import OPEN_PAGES, PAGES, PAGES_ROOT
from fencepost_judge._authentication import line_of, reasons_withheld
from fencepost_judge._role import JudgeRole, JudgeVisitor
from fencepost_judge._service import Judging
from fencepost_judge.pages._page_sessions import PageSessions, form_of, session_of
from fencepost_judge.pages._verdicts import verdict_of, worth
from fencepost_server.web.http_service import has_service, pages_for
from fencepost_server.web.page_errors import as_page, title_of, to_login
from fencepost_server.web.questions import TEMPLATE as QUESTION
from fencepost_server.web.questions import Confirmation, is_confirmed, question_facts
from fencepost_server.web.templating import HEADERS, RenderedPage, Templates

LOGIN = f"{PAGES_ROOT}/login"
CONSOLE = "/console"
NAVIGATION: tuple[tuple[str, str, JudgeRole], ...] = (
    (PAGES_ROOT, "Problems", JudgeRole.CONTESTANT),
    (f"{PAGES_ROOT}/contests", "Contests", JudgeRole.CONTESTANT),
    (f"{PAGES_ROOT}/submissions", "Submissions", JudgeRole.CONTESTANT),
    (f"{PAGES_ROOT}/rejudgings", "Rejudgings", JudgeRole.JURY),
    (f"{PAGES_ROOT}/import", "Import", JudgeRole.JURY),
    (f"{PAGES_ROOT}/workers", "Workers", JudgeRole.JURY),
    (f"{PAGES_ROOT}/users", "Users", JudgeRole.ADMIN),
    (CONSOLE, "Console", JudgeRole.ADMIN),
)


class PageRouter:
    """`router` has every page."""

    def __init__(self, judging: Judging, page_sessions: PageSessions) -> None:
        self.judging = judging
        self.fp = judging.fp
        self.page_sessions = page_sessions
        paper = RenderedPage(
            home=PAGES_ROOT, name="Fencepost Judge", script="judge.js", sheets=("app.css", "judge.css")
        )
        self._templates = Templates(
            paper, Path(__file__).parent, filters={"verdict": verdict_of, "worth": worth}
        )
        self.router = APIRouter(route_class=self._page_route(), include_in_schema=False)

    def show(
        self, request: Request, template: str, title: str, facts: Mapping[str, Any], *, status: int = 200
    ) -> Response:
        visitor: JudgeVisitor | None = request.state.visitor
        response = self._templates.page(
            request,
            template,
            {
                "title": title,
                "is_jury": visitor is not None and visitor.may(JudgeRole.JURY),
                "has_console": has_service(request, "console"),
                **facts,
            },
            visitor=visitor,
            navigation=[(address, name, "") for address, name in navigation(request, visitor)],
            form_token=self.page_sessions.form_token(request, session_of(request)),
            notice=self.page_sessions.cookies.notice(request),
            status=status,
        )
        self.page_sessions.cookies.take_notice(request, response)
        self.page_sessions.leave_visit(request, response)
        return response

    async def ask(self, request: Request, question: Confirmation) -> Response | None:
        """The page of the question; None when the form says that it was answered."""
        fields = await form_of(request)
        if is_confirmed(fields):
            return None
        return self.show(
            request, QUESTION, question.title, question_facts(question, request.url.path, fields)
        )

    def done(self, request: Request, back: str, message: str) -> Response:
        """After a form: redirects to a page that can be reloaded, with a one-sentence notice."""
        response = RedirectResponse(back, 303, headers=dict(HEADERS))
        self.page_sessions.cookies.leave_notice(request, response, message)
        return response

    def refuse(self, request: Request, status: int, message: str) -> Response:
        if status == 401:
            return to_login(request, LOGIN)
        return self.show(request, "refused.html", title_of(status), {"message": message}, status=status)

    def file(self, request: Request, name: str) -> Response:
        return self._templates.file(name) or self.refuse(request, 404, "There is no such file.")

    def _page_route(self) -> type[APIRoute]:
        router = self

        class PageRoute(APIRoute):
            def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
                handle = super().get_route_handler()
                line = line_of(self)
                access = None if line in OPEN_PAGES else PAGES[line]

                async def received(request: Request) -> Response:
                    request = router.page_sessions.admit(request, access)
                    try:
                        await router.page_sessions.check_form(request, session_of(request), read=form_of)
                        with reasons_withheld(request):
                            return await handle(request)
                    finally:
                        # Closes the files of a form, which may be on the disk.
                        await request.close()

                async def guarded(request: Request) -> Response:
                    with reasons_withheld(request):
                        await router.page_sessions.look_up(request)
                    return await as_page(received, request, router.refuse)

                return guarded

        return PageRoute


def navigation(request: Request, visitor: JudgeVisitor | None) -> list[tuple[str, str]]:
    return pages_for(visitor.may if visitor else None, request, NAVIGATION, {CONSOLE: "console"})
