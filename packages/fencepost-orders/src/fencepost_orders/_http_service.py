"""The orders service as an HTTP service."""

from __future__ import annotations

from fencepost.client import Fencepost
from fencepost.outbox.settings import OutboxSettings
from fencepost_orders._api import ACCESS, make_router
from fencepost_orders._compatible_names import NAMES
from fencepost_orders._settings import OrdersSettings
from fencepost_orders.brokers import make_brokers
from fencepost_orders.service import Orders
from fencepost_server.web.http_service import HttpService


def make_service(fp: Fencepost) -> HttpService:
    """Routes below /orders; the relays that send are the work of the role."""
    settings = OrdersSettings.load()
    names = NAMES.settings if fp.settings.compatible_names else ()
    orders = Orders(fp, make_brokers(settings.brokers), settings, OutboxSettings.load(also=names))
    return HttpService("orders", make_router(orders), orders.serving, access=ACCESS, working=orders.working)
