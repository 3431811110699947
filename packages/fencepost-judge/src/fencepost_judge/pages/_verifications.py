"""Verifying a package before it is imported: progress while a judge runs it, and the report."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

from fastapi import Request, Response
from pydantic import BaseModel, BeforeValidator, Field

from fencepost.errors import NotFound
from fencepost_judge._access import PAGES_ROOT
from fencepost_judge._authentication import Who
from fencepost_judge._uploads import stored_zip
from fencepost_judge.pages._imports import ImportForm, uploaded
from fencepost_judge.pages._page_router import PageRouter
from fencepost_judge.pages._page_sessions import form_of
from fencepost_judge.pages._statement import render_report
from fencepost_server.web.forms import Id, filled
from fencepost_server.web.templating import HEADERS

HOME = f"{PAGES_ROOT}/verifications"
PAGE_ROWS = 50


class AgainForm(BaseModel):
    time_limit: Annotated[
        float | None, Field(ge=0.01, le=600), BeforeValidator(lambda value: None if value == "" else value)
    ] = None


def add(router: PageRouter) -> None:
    judging, verifications = router.judging, router.judging.verifications

    @router.router.get(HOME)
    async def listed(request: Request, before: Id | None = None) -> Response:
        found = await verifications.newest(before, PAGE_ROWS)
        further = found[-1].job_id if len(found) == PAGE_ROWS else None
        return router.show(
            request, "verifications.html", "Verified packages", {"found": found, "further": further}
        )

    @router.router.post(HOME)
    async def verify(request: Request, who: Who) -> Response:
        wanted = filled(ImportForm, await form_of(request))
        slug, parts = await uploaded(request, wanted)
        async with stored_zip(parts) as place:
            job_id = await verifications.submit(place, slug, wanted.time_limit, actor=who.name)
        return router.done(request, f"{HOME}/{job_id}", f"{slug} waits for a judge.")

    @router.router.get(f"{HOME}/{{job_id}}")
    async def shown(request: Request, job_id: Id) -> Response:
        one = await verifications.get(job_id)
        title = f"Verification of {one.name}"
        facts = {"one": one, "report": render_report(one.text)}
        return router.show(request, "verification.html", title, facts)

    @router.router.get(f"{HOME}/{{job_id}}/report")
    async def report(job_id: Id) -> Response:
        one = await verifications.get(job_id)
        if not one.text:
            raise NotFound(f"Verification {job_id} has no report.", noun="verification", subject=str(job_id))
        name = {"Content-Disposition": f'attachment; filename="{one.name}.md"'}
        return Response(one.text, media_type="text/markdown; charset=utf-8", headers={**HEADERS, **name})

    @router.router.post(f"{HOME}/{{job_id}}/again")
    async def again(request: Request, who: Who, job_id: Id) -> Response:
        wanted = filled(AgainForm, await form_of(request))
        made = await verifications.repeat(job_id, wanted.time_limit, actor=who.name)
        return router.done(request, f"{HOME}/{made}", "It waits for a judge.")

    @router.router.post(f"{HOME}/{{job_id}}/import")
    async def import_verified(request: Request, job_id: Id) -> Response:
        """Import what was verified, with the time limit that it was verified with."""
        one = await verifications.get(job_id)
        with tempfile.TemporaryDirectory(prefix="fencepost-import-") as scratch:
            place = Path(scratch) / f"{one.name}.zip"
            await verifications.package(one, place)
            made = await judging.import_problem(
                place, slug=one.name, time_limit_seconds=one.time_limit_seconds
            )
        told = f"{made.title} ({made.slug}) is imported, version {made.version}."
        return router.done(request, f"{PAGES_ROOT}/problems/{made.slug}", told)
