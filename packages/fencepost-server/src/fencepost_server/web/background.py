"""The background work of every server beside its services: webhook delivery and retention."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from fastapi import APIRouter

from fencepost.client import Fencepost
from fencepost.outbox.settings import OutboxSettings
from fencepost.outbox.webhook_relays import delivering
from fencepost_server.web.http_service import HttpService


def make_service(fp: Fencepost) -> HttpService:
    """A service without routes."""
    settings = OutboxSettings.load()
    errors = fp.metrics.counter("webhook_loop_errors", "What a loop of webhooks caught.", labels=("loop",))

    @asynccontextmanager
    async def running() -> AsyncGenerator[None]:
        async with fp.retention(), delivering(fp, settings, errors):
            yield

    return HttpService("chores", APIRouter(), running)
