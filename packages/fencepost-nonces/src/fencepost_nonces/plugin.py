"""The plugin that this distribution registers with Fencepost."""

from pathlib import Path

from fencepost.plugin import Plugin

_HERE = Path(__file__).parent

PLUGIN = Plugin(
    name="nonces",
    about="nonces of signers, and transactions sent with them",
    schemas={"nonces": _HERE},
    requires=("accounts",),
    settings=("fencepost_nonces._settings:NoncesSettings",),
    commands={
        "nonces": "fencepost_nonces.commands._nonces:app",
        "tx": "fencepost_nonces.commands._transactions:app",
    },
    http_service="fencepost_nonces._http_service:make_service",
    console="fencepost_nonces._console_pages:PAGES",
    needs="select need, name, things from fencepost.nonce_needs()",
    demo="fencepost_nonces._demo:PART",
    names="fencepost_nonces._compatible_names:NAMES",
)
