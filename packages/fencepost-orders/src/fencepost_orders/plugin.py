"""The plugins that this distribution registers with Fencepost."""

from pathlib import Path

from fencepost.plugin import Plugin

_HERE = Path(__file__).parent

PLUGIN = Plugin(
    name="orders",
    about="orders placed at a broker once",
    schemas={"orders": _HERE},
    requires=("accounts", "webhooks"),
    settings=("fencepost_orders._settings:OrdersSettings",),
    commands={"orders": "fencepost_orders._commands:app"},
    http_service="fencepost_orders._http_service:make_service",
    console="fencepost_orders._console_pages:PAGES",
    needs="select need, name, things from fencepost.orders_needs()",
    demo="fencepost_orders._demo:PART",
    names="fencepost_orders._compatible_names:NAMES",
)
