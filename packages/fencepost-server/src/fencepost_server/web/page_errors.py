"""Errors as pages: an anonymous visitor is sent to the login, a refusal states its reason."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse
from starlette.exceptions import HTTPException

from fencepost.errors import FencepostError
from fencepost_server.web.errors import brief, status_of
from fencepost_server.web.formatting import link
from fencepost_server.web.forms import first_user_error
from fencepost_server.web.templating import HEADERS

Handler = Callable[[Request], Awaitable[Response]]
Refuse = Callable[[Request, int, str], Response]
_TITLES = {401: "Sign in required", 403: "Forbidden", 404: "Not found", 429: "Too many requests"}


async def as_page(handle: Handler, request: Request, refuse: Refuse) -> Response:
    """What `handle` returns, or what `refuse` makes of its error."""
    try:
        return await handle(request)
    except HTTPException as error:
        return refuse(request, error.status_code, brief(str(error.detail), request))
    except RequestValidationError as error:
        return refuse(request, 400, brief(first_user_error(error.errors()), request))
    except FencepostError as error:
        return refuse(request, status_of(error)[0], brief(str(error), request))


def title_of(status: int) -> str:
    """The title of an error page for this status."""
    return _TITLES.get(status, "Refused" if status < 500 else "Failed")


def to_login(request: Request, login: str) -> Response:
    """Redirect to the login, which returns to the requested page."""
    wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    target = link(login, next=wanted if request.method == "GET" else None)
    return RedirectResponse(target, 303, headers=dict(HEADERS))
