"""The plugin that this distribution registers with Fencepost."""

from pathlib import Path

from fencepost.plugin import Plugin

_HERE = Path(__file__).parent

PLUGIN = Plugin(
    name="nonces",
    about="nonces of signers, and transactions sent with them",
    schemas={"nonces": _HERE},
    settings=("fencepost_nonces.settings:NoncesSettings",),
    commands={
        "nonces": "fencepost_nonces.commands.nonces:app",
        "tx": "fencepost_nonces.commands.transactions:app",
    },
    http_service="fencepost_nonces.http_service:make_service",
    console="fencepost_nonces.console_pages:PAGES",
    needs="select need, name, things from fencepost.nonce_needs()",
    names="fencepost_nonces.compatible_names:NAMES",
)
