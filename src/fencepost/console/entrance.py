"""The entrance: login, one-time links, logout."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Query, Request, Response
from fastapi.responses import RedirectResponse

from fencepost.console import people
from fencepost.console.desk import PAGES
from fencepost.console.doors import address_of, fields_of, local_path
from fencepost.console.passwords import Passwords
from fencepost.console.place import Place
from fencepost.console.role import Role
from fencepost.console.seal import digest_of
from fencepost.console.stationery import HEADERS, STATIC

WINDOW_SECONDS = 900.0
NAME_MAX = 64
OPEN_PATHS = (f"{PAGES}/login", f"{PAGES}/enter", f"{PAGES}/static/{{name}}", "/")
"""The paths for which nobody needs to be known. A test holds every other one against the doors."""
_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}


def add_pages(place: Place) -> None:
    pages, desk = place.desk.pages, place.desk
    files = {path.name: path for path in STATIC.iterdir() if path.suffix in _TYPES}

    @pages.get("/")
    async def front() -> Response:
        return RedirectResponse(PAGES, 303, headers=dict(HEADERS))

    @pages.get(f"{PAGES}/static/{{name}}")
    async def static(request: Request, name: str) -> Response:
        path = files.get(name)
        if path is None:
            return desk.refuse(request, 404, "There is no such file.")
        headers = {**HEADERS, "Cache-Control": "no-cache"}
        return Response(path.read_bytes(), media_type=_TYPES[path.suffix], headers=headers)

    @pages.get(f"{PAGES}/login")
    async def login_form(request: Request, next: Annotated[str | None, Query()] = None) -> Response:  # noqa: A002
        return desk.show(
            request, "login.html", {"title": "Log in", "next": local_path(next), "complaint": None}
        )

    _add_login(place, Passwords())

    @pages.get(f"{PAGES}/enter")
    async def enter(request: Request, ticket: Annotated[str, Query(max_length=200)] = "") -> Response:
        """A one-time link: gone with its first use."""
        known = await place.fp.run(people.use_ticket(digest_of(ticket), address_of(request)))
        if known is None:
            return desk.refuse(
                request, 403, "This link was used already, or is too old. `fencepost console link` makes one."
            )
        response = RedirectResponse(PAGES, 303, headers=dict(HEADERS))
        await desk.doors.begin_session(request, response, known.name)
        return response

    @pages.post(f"{PAGES}/logout", dependencies=[Depends(desk.doors.needs(Role.VIEWER))])
    async def logout(request: Request) -> Response:
        response = RedirectResponse(f"{PAGES}/login", 303, headers=dict(HEADERS))
        await desk.doors.end_session(request, response)
        return response


def _add_login(place: Place, passwords: Passwords) -> None:
    desk = place.desk

    @desk.pages.post(f"{PAGES}/login")
    async def login(request: Request) -> Response:
        fields = await fields_of(request)
        name, address = fields.get("name", "").replace("\0", "")[:NAME_MAX], address_of(request)
        wanted = local_path(fields.get("next"))

        def again(complaint: str, status: int) -> Response:
            facts = {"title": "Log in", "next": wanted, "complaint": complaint}
            return desk.show(request, "login.html", facts, status=status)

        if not name:
            return again("Who are you?", 400)
        attempt = await place.fp.run(people.begin_login(name, address, window_seconds=WINDOW_SECONDS))
        if attempt.wait_seconds is not None:
            return again(f"Too many attempts. Wait {max(1, round(attempt.wait_seconds / 60))} min.", 429)
        verdict = await passwords.judge(fields.get("password", ""), attempt.password)
        await place.fp.run(people.end_login(name, address, right=verdict.right, rehashed=verdict.rehashed))
        if not verdict.right:
            return again("Name or password is wrong.", 403)
        response = RedirectResponse(wanted, 303, headers=dict(HEADERS))
        await desk.doors.begin_session(request, response, name)
        return response
