"""The plugin that this distribution registers with Fencepost."""

from pathlib import Path

from fencepost.plugin import Plugin

_HERE = Path(__file__).parent

PLUGIN = Plugin(
    name="players",
    about="mutations of players, each granted once",
    schemas={"mutations": _HERE / "mutations", "players": _HERE},
    requires=("accounts",),
    settings=("fencepost_players.mutations.settings:MutationSettings",),
    commands={"players": "fencepost_players._commands:app"},
    http_service="fencepost_players._http_service:make_service",
    console="fencepost_players._console_pages:PAGES",
    demo="fencepost_players._demo:PART",
    names="fencepost_players._compatible_names:NAMES",
)
