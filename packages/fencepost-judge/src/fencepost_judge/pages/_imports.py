"""Import of a package from a zip."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Annotated

from fastapi import Request, Response
from pydantic import BaseModel, BeforeValidator, Field
from starlette.datastructures import UploadFile

from fencepost.errors import InvalidInput
from fencepost_judge._access import PAGES_ROOT
from fencepost_judge._api import import_zip
from fencepost_judge._problem import Slug
from fencepost_judge.packages._icpc import slug_of
from fencepost_judge.pages._page_router import PageRouter
from fencepost_judge.pages._page_sessions import form_of
from fencepost_server.web.forms import filled
from fencepost_server.web.settings import WebSettings

PART_BYTES = 1 << 20


class ImportForm(BaseModel):
    slug: Annotated[Slug | None, BeforeValidator(lambda value: None if value == "" else value)] = None
    """A slug that replaces the file's name."""
    time_limit: Annotated[
        float | None, Field(ge=0.01, le=600), BeforeValidator(lambda value: None if value == "" else value)
    ] = None
    """In seconds; overrides the package's."""


async def _parts(package: UploadFile) -> AsyncGenerator[bytes]:
    while part := await package.read(PART_BYTES):
        yield part


async def uploaded(request: Request, wanted: ImportForm) -> tuple[str, AsyncGenerator[bytes]]:
    """The name of the package in a form, and the parts of its zip."""
    package = (await request.form()).get("package")
    if not isinstance(package, UploadFile) or not package.filename:
        raise InvalidInput("Choose a zip.", field="package")
    slug = wanted.slug or slug_of(package.filename.rpartition("/")[2].removesuffix(".zip"))
    return slug, _parts(package)


def add(router: PageRouter) -> None:
    most = WebSettings.load().body_max_bytes

    @router.router.get(f"{PAGES_ROOT}/import")
    async def import_form(request: Request) -> Response:
        return router.show(request, "import.html", "Import a problem", {"most_bytes": most})

    @router.router.post(f"{PAGES_ROOT}/import")
    async def import_package(request: Request) -> Response:
        wanted = filled(ImportForm, await form_of(request))
        slug, parts = await uploaded(request, wanted)
        made = await import_zip(router.judging, parts, slug, wanted.time_limit)
        told = f"{made.title} ({made.slug}) is imported, version {made.version}."
        return router.done(request, f"{PAGES_ROOT}/problems/{made.slug}", told)
