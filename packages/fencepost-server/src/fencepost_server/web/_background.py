"""What every server has beside its services: retention, and with the role `webhooks` their delivery."""

from __future__ import annotations

from fastapi import APIRouter

from fencepost.client import Fencepost
from fencepost.metrics import MetricSet, counter
from fencepost.outbox.settings import OutboxSettings
from fencepost.outbox.webhook_relays import delivering
from fencepost_server.web.http_service import HttpService

WEBHOOKS = "webhooks"


class WebhookMetrics(MetricSet):
    loop_errors = counter(
        "fencepost_webhook_loop_errors", "Ticks of the loops of webhooks that failed.", labels=("loop",)
    )


def make_service(fp: Fencepost) -> HttpService:
    """A service without routes."""
    settings = OutboxSettings.load()
    errors = WebhookMetrics.on(fp.metrics).loop_errors

    return HttpService(WEBHOOKS, APIRouter(), fp.retention, working=lambda: delivering(fp, settings, errors))
