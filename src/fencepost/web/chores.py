"""What every house does beside its services: it delivers to webhooks, and forgets what has had its time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from fastapi import APIRouter

from fencepost.house import Fencepost
from fencepost.outbox.hooks import delivering
from fencepost.outbox.settings import OutboxSettings
from fencepost.upkeep import Upkeep
from fencepost.web.part import Part


def make_part(fp: Fencepost) -> Part:
    """No routes."""
    settings = OutboxSettings.load()
    errors = fp.metrics.counter("webhook_loop_errors", "What a loop of webhooks caught.", labels=("loop",))

    @asynccontextmanager
    async def running() -> AsyncGenerator[None]:
        upkeep = asyncio.create_task(Upkeep(fp, fp.settings).run(), name="fencepost-upkeep")
        try:
            async with delivering(fp, settings, errors):
                yield
        finally:
            upkeep.cancel()
            await asyncio.gather(upkeep, return_exceptions=True)

    return Part("chores", APIRouter(), running)
