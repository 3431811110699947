"""What every house does beside its services: it delivers to webhooks, and forgets what has had its time."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from fastapi import APIRouter

from fencepost.house import Fencepost
from fencepost.outbox.hooks import delivering
from fencepost.outbox.settings import OutboxSettings
from fencepost.web.part import Part


def make_part(fp: Fencepost) -> Part:
    """No routes."""
    settings = OutboxSettings.load()
    errors = fp.metrics.counter("webhook_loop_errors", "What a loop of webhooks caught.", labels=("loop",))

    @asynccontextmanager
    async def running() -> AsyncGenerator[None]:
        async with fp.upkeep(), delivering(fp, settings, errors):
            yield

    return Part("chores", APIRouter(), running)
