"""The console pages that plugins provide."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, cast

from fencepost.plugin import load, plugins

if TYPE_CHECKING:
    from fencepost_server.console.context import ConsoleContext


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsolePages:
    """The pages of one service."""

    address: str
    """The address of its first page, below /console."""
    title: str
    """The title in the navigation."""
    templates: Path
    add: Callable[[ConsoleContext], None]
    """Adds the pages and their actions to the console's router."""
    describe_need: Callable[[str, str | None], tuple[str, str]] | None = None
    """The text for a row of the plugin's `needs`, and the address where it is decided."""
    message_address: Callable[[str, str], str | None] | None = None
    """The page that decides about messages of a channel in a state; None for a channel of another plugin."""


@cache
def plugin_pages() -> Mapping[str, ConsolePages]:
    """The pages of every plugin that has some, by the plugin's name."""
    return {
        name: cast("ConsolePages", load(plugin.console))
        for name, plugin in plugins().items()
        if plugin.console is not None
    }
