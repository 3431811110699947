"""Forms: parsing and validating what a browser sends."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any, TypeVar
from urllib.parse import parse_qsl, unquote

from fastapi import Request
from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from fencepost.errors import InvalidInput

FIELDS_MAX = 1100
"""The selected rows of the longest page, and the other fields of its form."""
FORM_FIELD = "form_token"
FORM_HEADER = "x-form-token"
SAFE_METHODS = frozenset({"GET", "HEAD"})
Id = Annotated[int, Field(ge=0, le=9_223_372_036_854_775_807)]
"""The range of ids in the database."""
IDS_MAX = 500


def _numbers(value: object) -> object:
    """A form sends the selected ids as one text, with commas between them."""
    return value.split(",") if isinstance(value, str) else value


Ids = Annotated[list[Id], BeforeValidator(_numbers), Field(min_length=1, max_length=IDS_MAX)]
"""The rows that were selected in a list."""
Model = TypeVar("Model", bound=BaseModel)


async def fields_of(request: Request) -> dict[str, str]:
    """The fields of a form, as browsers send them. One that is sent several times has commas between its
    values. Parsed here, so that no library is needed."""
    if not request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        return {}
    with suppress(UnicodeDecodeError, ValueError):
        fields: dict[str, str] = {}
        given = parse_qsl((await request.body()).decode(), keep_blank_values=True, max_num_fields=FIELDS_MAX)
        for name, value in given:
            fields[name] = f"{fields[name]},{value}" if name in fields else value
        return fields
    return {}


def filled(model: type[Model], fields: Mapping[str, Any]) -> Model:
    """A form's fields as the model; an empty field counts as omitted."""
    given = {name: value for name, value in fields.items() if name in model.model_fields and value != ""}
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise InvalidInput(first_user_error(error.errors())) from None


def first_user_error(errors: Any) -> str:
    """The first error of a refused form or body, with the name of its field."""
    first = errors[0]
    field = ".".join(str(part) for part in first["loc"] if part not in {"query", "path", "body"})
    return f"{field}: {first['msg']}."


def address_of(request: Request) -> str:
    """The client's address, or `unknown`."""
    return request.client.host if request.client else "unknown"


def readable(text: str) -> str:
    """The text without what PostgreSQL cannot store or a header cannot carry."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()


def local_path(path: str | None, home: str) -> str:
    """Where to go after the login: a page below `home`, never another host."""
    if path is None or "\\" in path or "//" in path or not path.isprintable():
        return home
    bare = path.partition("?")[0]
    if any(unquote(part) in {".", ".."} for part in bare.split("/")):
        # A browser resolves these upwards before it sends the request.
        return home
    return path if bare == home or bare.startswith(f"{home}/") else home
