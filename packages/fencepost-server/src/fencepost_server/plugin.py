"""The plugins that this distribution registers with Fencepost."""

from pathlib import Path

from fencepost.plugin import Plugin

_HERE = Path(__file__).parent

PLUGIN = Plugin(
    name="console",
    about="the HTTP application, its accounts and the console",
    schemas={"accounts": _HERE / "accounts", "console": _HERE / "console"},
    requires=("accounts", "webhooks"),
    settings=(
        "fencepost_server.web.settings:WebSettings",
        "fencepost_server.console._settings:ConsoleSettings",
    ),
    commands={
        "serve": "fencepost_server._commands:serve",
        "run": "fencepost_server._commands:run",
        "console": "fencepost_server.console._commands:app",
        "tokens": "fencepost_server._token_commands:app",
    },
    needs="select need, name, things from fencepost.console_needs()",
    announce="fencepost_server.console._commands:announce",
)
