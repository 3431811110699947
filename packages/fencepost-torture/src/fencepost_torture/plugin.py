"""What this distribution adds to Fencepost."""

from fencepost.plugin import Plugin

PLUGIN = Plugin(
    name="torture",
    about="systems under faults from a seed, with a verdict",
    commands={"torture": "fencepost_torture._commands:torture"},
)
