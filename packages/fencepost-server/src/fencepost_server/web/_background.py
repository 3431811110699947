"""The background work of every server beside its services: webhook delivery and retention."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from fastapi import APIRouter

from fencepost.client import Fencepost
from fencepost.metrics import MetricSet, counter
from fencepost.outbox.settings import OutboxSettings
from fencepost.outbox.webhook_relays import delivering
from fencepost_server.web.http_service import HttpService


class WebhookMetrics(MetricSet):
    loop_errors = counter(
        "fencepost_webhook_loop_errors", "Ticks of the loops of webhooks that failed.", labels=("loop",)
    )


def make_service(fp: Fencepost) -> HttpService:
    """A service without routes."""
    settings = OutboxSettings.load()
    errors = WebhookMetrics.on(fp.metrics).loop_errors

    @asynccontextmanager
    async def running() -> AsyncGenerator[None]:
        async with fp.retention(), delivering(fp, settings, errors):
            yield

    return HttpService("background", APIRouter(), running)
