"""The nonces as a part of the house: their routes, and the node that runs beside them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from fencepost.client import Fencepost
from fencepost.kernel.migrate import require
from fencepost.nonces.api import make_router
from fencepost.nonces.forwarding import Carrier
from fencepost.nonces.metrics import NonceMetrics
from fencepost.nonces.node import Node
from fencepost.nonces.settings import NoncesSettings
from fencepost.web.part import Part


def make_part(fp: Fencepost, settings: NoncesSettings | None = None) -> Part:
    settings = settings or NoncesSettings.load()
    node = Node(fp, settings, NonceMetrics.on(fp.metrics))
    carrier = Carrier(seconds=settings.wait_seconds + 5) if settings.routing == "forward" else None

    @asynccontextmanager
    async def running() -> AsyncGenerator[None]:
        require(fp.database_url, "nonces")
        await node.start()
        try:
            yield
        finally:
            await node.stop()
            if carrier is not None:
                await carrier.close()

    return Part("nonces", make_router(fp, node, carrier), running)
