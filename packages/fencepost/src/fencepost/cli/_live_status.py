"""Reads the status once, or repeatedly."""

from __future__ import annotations

from dataclasses import replace

from rich.console import Console
from rich.live import Live

from fencepost import server_addresses
from fencepost.cli._status_screen import board_screen
from fencepost.cli._status_snapshot import StatusSnapshot, read_board
from fencepost.cli.database_reader import reading
from fencepost.cli.shutdown import Shutdown
from fencepost.cli.terminal import answer_json, logs_json
from fencepost.plugin import compatible_plugins
from fencepost.settings import Settings


def look(settings: Settings | None = None) -> StatusSnapshot:
    settings = settings or Settings.load()
    addresses = server_addresses.of_this_directory(settings)
    # The status of a moment ago is as good: a standby can give it.
    url = settings.standby_database_url or addresses.viewer_url
    with reading(url, seconds=settings.connect_seconds, remedy=addresses.remedy) as connection:
        board = read_board(connection)
    return replace(board, compatible_names=compatible_plugins() if settings.compatible_names else ())


def watch(every_seconds: float, *, as_json: bool) -> None:
    """Show the status repeatedly until a stop is requested, which cuts no line."""
    ending = Shutdown()
    with ending.listening():
        if as_json or logs_json():
            _watch_json(ending, every_seconds)
        else:
            _watch_screen(ending, every_seconds)


def _watch_json(ending: Shutdown, every_seconds: float) -> None:
    answer_json(look().as_json(), indent=None)
    while not ending.wait(every_seconds):
        answer_json(look().as_json(), indent=None)


def _watch_screen(ending: Shutdown, every_seconds: float) -> None:
    with Live(
        board_screen(look()), console=Console(highlight=False), screen=True, auto_refresh=False
    ) as live:
        while not ending.wait(every_seconds):
            live.update(board_screen(look()), refresh=True)
