"""The teams of a contest, and their import."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import Request, Response
from pydantic import BaseModel, Field
from starlette.datastructures import UploadFile

from fencepost.errors import InvalidInput
from fencepost_judge import _teams as teams
from fencepost_judge import _visibility as visibility
from fencepost_judge._authentication import Who
from fencepost_judge._text_zip import read_texts
from fencepost_judge.ccs import _importing as importing
from fencepost_judge.ccs._imports import read_files
from fencepost_judge.pages._contest_frame import contest_frame
from fencepost_judge.pages._contests import HOME
from fencepost_judge.pages._page_router import PageRouter
from fencepost_judge.pages._page_sessions import form_of
from fencepost_server.accounts.passwords import Passwords
from fencepost_server.web.forms import filled

BYTES_MAX = 16_777_216
FILES_MAX = 20


class AccountsRequest(BaseModel):
    prefix: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,19}$")]
    count: Annotated[int, Field(ge=1, le=500)]
    group: Annotated[str, Field(max_length=36)] | None = None


def add(router: PageRouter, passwords: Passwords) -> None:
    fp = router.fp
    place = f"{HOME}/{{contest}}/teams"

    @router.router.get(place)
    async def all_teams(request: Request, contest: str) -> Response:
        return await shown(request, contest, [])

    @router.router.post(place)
    async def import_teams(request: Request, who: Who, contest: str) -> Response:
        await form_of(request)
        file = (await request.form()).get("file")
        if not isinstance(file, UploadFile) or not file.filename:
            raise InvalidInput("Choose a file.", field="file")
        name = file.filename.rpartition("/")[2]
        texts = await asyncio.to_thread(_texts, name, await file.read(BYTES_MAX))
        known = (await visibility.contest(fp, contest)).contest
        found, issued = importing.with_passwords(read_files(texts, contest))
        # Hashed before the transaction: each takes a tenth of a second.
        calls = await asyncio.to_thread(
            lambda: list(importing.calls_of(found, contest, who.name, passwords.hashed, known))
        )
        async with fp.transaction() as tx:
            for call in calls:
                await tx.run(call)
        if issued:
            # Not after a redirect: they are shown once, and kept nowhere.
            return await shown(request, contest, issued)
        return router.done(request, f"{HOME}/{contest}/teams", f"Imported: {importing.summary(found)}.")

    @router.router.post(f"{HOME}/{{contest}}/accounts")
    async def make_accounts(request: Request, who: Who, contest: str) -> Response:
        """Teams with a user each, numbered, with passwords to print."""
        wanted = filled(AccountsRequest, await form_of(request))
        found, issued = importing.with_passwords(
            importing.numbered(wanted.prefix, wanted.count, wanted.group)
        )
        known = (await visibility.contest(fp, contest)).contest
        calls = await asyncio.to_thread(
            lambda: list(importing.calls_of(found, contest, who.name, passwords.hashed, known))
        )
        async with fp.transaction() as tx:
            for call in calls:
                await tx.run(call)
        return await shown(request, contest, issued)

    async def shown(request: Request, contest: str, issued: list[importing.IssuedPassword]) -> Response:
        seen = await visibility.contest(fp, contest)
        accounts: dict[str, list[str]] = {}
        for one in await fp.run(teams.accounts(contest)):
            accounts.setdefault(one.team, []).append(one.name)
        facts = {
            **await contest_frame(router, request, seen),
            "teams": await fp.run(teams.teams(contest)),
            "organizations": {one.id: one.name for one in await fp.run(teams.organizations(contest))},
            "groups": {one.id: one for one in await fp.run(teams.groups(contest))},
            "accounts": accounts,
            "issued": issued,
        }
        return router.show(request, "teams.html", f"Teams of {seen.contest.title}", facts)


def _texts(name: str, content: bytes) -> dict[str, str]:
    """The file, or the files of a zip, by name."""
    if name.endswith(".zip"):
        found = read_texts(content, bytes_max=BYTES_MAX, files_max=FILES_MAX, field="file")
        return {path.rpartition("/")[2]: text for path, text in found.items()}
    try:
        return {name: content.decode()}
    except UnicodeDecodeError:
        raise InvalidInput("This is no text file, and no zip.", field="file") from None
