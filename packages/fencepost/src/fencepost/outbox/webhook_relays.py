"""The relays of a process for outbox channels whose messages go to URLs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from fencepost.backoff import Backoff
from fencepost.database import OpenClient
from fencepost.http_client import HttpClient
from fencepost.listener import Listener
from fencepost.metrics import Counter
from fencepost.outbox._delivery import Channel
from fencepost.outbox._webhook import Webhook
from fencepost.outbox.relay import Relay
from fencepost.outbox.settings import OutboxSettings


@asynccontextmanager
async def delivering(fp: OpenClient, settings: OutboxSettings, errors: Counter) -> AsyncGenerator[None]:
    """Deliver the messages of the channels in `OUTBOX_WEBHOOKS`. Any number of processes may share them."""
    if not settings.hooks:
        yield
        return
    token = settings.webhook_token
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    backoff = Backoff(settings.backoff_base_seconds, settings.backoff_base_seconds * 128)
    listener = Listener(fp.settings.listen_database_url or fp.database_url)
    async with HttpClient(loopback_by_name=False) as client:
        relays = [
            Relay(
                f"webhook.{channel}",
                Channel(fp, channel),
                Webhook(client, url, headers=headers, backoff=backoff, tries_max=settings.retry_max + 1),
                fp,
                fp.owner,
                errors,
                settings.pace(),
                carried=lambda message: message.headers,
            )
            for channel, url in settings.hooks.items()
        ]
        for relay in relays:
            relay.start(listener)
        listening = asyncio.create_task(listener.run(), name="fencepost-webhooks-listener")
        try:
            yield
        finally:
            await asyncio.gather(*(relay.stop() for relay in relays))
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
