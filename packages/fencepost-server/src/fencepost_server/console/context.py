"""The objects that every page uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from fencepost.client import Fencepost
from fencepost_server.console._live_snapshot import LiveSnapshot
from fencepost_server.console._read_pool import ReadPool, Row
from fencepost_server.console._settings import ConsoleSettings
from fencepost_server.console.listing import ListQuery, Lists
from fencepost_server.console.router import ConsoleRouter
from fencepost_server.web.forms import Id

LAST_ID = 9_223_372_036_854_775_807
Limit = Annotated[int, Field(ge=1, le=1000, description="Rows on one page.")]


def _unless_empty(value: object) -> object:
    """A form sends every field; an empty one means no value."""
    return None if value == "" else value


MaybeId = Annotated[Id | None, BeforeValidator(_unless_empty)]
Name = Annotated[str, Field(max_length=1200, pattern=r"^[^\x00]*$")]


@dataclass(frozen=True, slots=True)
class ConsoleContext:
    """The router that registers pages, the pool that reads, the lists over it, the Fencepost that writes, the
    snapshot and the settings."""

    router: ConsoleRouter
    reading: ReadPool
    lists: Lists
    fp: Fencepost
    live_snapshot: LiveSnapshot
    settings: ConsoleSettings


class Paged(ListQuery):
    """A list that is paged by its key: the rows below `before`."""

    before: MaybeId = None
    limit: Limit = 50

    def filters(self) -> dict[str, Any]:
        """The parameters that the links of a page keep: everything but the position in the list."""
        return {
            name: value
            for name, value in self.model_dump().items()
            if name not in ("before", "sort", "onward") and value not in (None, "", 50)
        }


def wanted(text: str | None) -> str | None:
    """An empty field of a filter means no filter."""
    return text or None


def following(rows: Sequence[Row], key: str, limit: int) -> Any:
    """Where the next page begins, by the key of this one's last row; None when this is the last page."""
    return rows[-1][key] if len(rows) == limit else None
