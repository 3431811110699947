"""The relays of a process for outbox channels whose messages go to URLs: those of `OUTBOX_WEBHOOKS`, and
those of registered webhooks, which are signed.

Registered webhooks are read again every few seconds, so that every process follows a change. Where both name
a channel, the registered one has it, also while it is paused.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

from fencepost.backoff import Backoff
from fencepost.database import OpenClient
from fencepost.http_client import HttpClient, Loopback
from fencepost.kernel.migrate import schema_version
from fencepost.kernel.outbox import Message, Settlement
from fencepost.listener import Listener
from fencepost.logs import get_logger
from fencepost.loop import Loop
from fencepost.metrics import Counter
from fencepost.outbox._delivery import Channel
from fencepost.outbox._webhook import RETRIED_SIGNED, Webhook
from fencepost.outbox.relay import Relay
from fencepost.outbox.settings import OutboxSettings
from fencepost.webhooks import HEADER, calls, sign

_log = get_logger(__name__)
REGISTRY_SECONDS = 2.0


@asynccontextmanager
async def delivering(fp: OpenClient, settings: OutboxSettings, errors: Counter) -> AsyncGenerator[None]:
    """Deliver the messages of all webhooks. Any number of processes may share them."""
    # A database that was migrated with --only may not have them.
    has_registry = await asyncio.to_thread(schema_version, fp.database_url, "webhooks") is not None
    if not has_registry and not settings.hooks:
        yield
        return
    listener = Listener(fp.settings.listen_database_url or fp.database_url)
    guard: Loopback = "any" if settings.webhook_loopback else "never"
    async with HttpClient(loopback="named") as client, HttpClient(loopback=guard) as guarded:
        relays = WebhookRelays(fp, settings, errors, listener, client, guarded, has_registry=has_registry)
        registry = Loop("webhooks.registry", relays.follow, errors)
        registry.start()
        listening = asyncio.create_task(listener.run(), name="fencepost-webhooks-listener")
        try:
            yield
        finally:
            await registry.stop()
            await relays.stop()
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)


class Signer:
    """Signs bodies with the secrets of a webhook, which may change while it is delivered to."""

    def __init__(self, secrets: list[str]) -> None:
        self.secrets = secrets

    def headers(self, body: bytes) -> Mapping[str, str]:
        """The signature header for this body."""
        return {HEADER: sign(body, self.secrets)}


class WebhookRelays:
    """One relay for each channel that is delivered to a URL."""

    def __init__(
        self,
        fp: OpenClient,
        settings: OutboxSettings,
        errors: Counter,
        listener: Listener,
        client: HttpClient,
        guarded: HttpClient,
        *,
        has_registry: bool,
    ) -> None:
        self._fp = fp
        self._settings = settings
        self._errors = errors
        self._listener = listener
        self._client = client
        self._guarded = guarded
        self._has_registry = has_registry
        self._running: dict[str, tuple[str, Signer | None, Relay[Message, Settlement]]] = {}

    async def follow(self) -> float:
        """Make the relays what the settings and the registered webhooks say now."""
        found = await self._fp.run(calls.deliverable()) if self._has_registry else []
        registered = {one.name: one for one in found}
        urls = {**self._settings.hooks, **{name: one.url for name, one in registered.items()}}
        wanted = {name: url for name, url in urls.items() if url is not None}
        over = [
            name
            for name, (url, signer, _) in self._running.items()
            if wanted.get(name) != url or (signer is not None) != (name in registered)
        ]
        await self._end(over)
        for name, url in wanted.items():
            hook = registered.get(name)
            if name not in self._running:
                self._start(name, url, None if hook is None else Signer(hook.secrets))
            signer = self._running[name][1]
            if signer is not None and hook is not None:
                signer.secrets = hook.secrets
        return REGISTRY_SECONDS

    async def stop(self) -> None:
        """Stop every relay; what is under way is settled first."""
        await self._end(list(self._running))

    def _start(self, name: str, url: str, signer: Signer | None) -> None:
        if signer is not None and name in self._settings.hooks:
            _log.warning("webhook_registered_and_set", webhook=name, remedy="remove it from OUTBOX_WEBHOOKS")
        relay = Relay(
            f"webhook.{name}",
            Channel(self._fp, name),
            self._destination(url) if signer is None else self._signed(url, signer),
            self._fp,
            self._fp.owner,
            self._errors,
            self._settings.pace(),
            carried=lambda message: message.headers,
        )
        relay.start(self._listener)
        self._running[name] = url, signer, relay

    async def _end(self, names: list[str]) -> None:
        relays = [self._running.pop(name)[2] for name in names]
        await asyncio.gather(*(relay.stop() for relay in relays))

    def _destination(self, url: str) -> Webhook:
        token = self._settings.webhook_token
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return Webhook(
            self._client,
            url,
            headers=headers,
            backoff=self._backoff(),
            tries_max=self._settings.retry_max + 1,
        )

    def _signed(self, url: str, signer: Signer) -> Webhook:
        return Webhook(
            self._guarded,
            url,
            backoff=self._backoff(),
            tries_max=self._settings.retry_max + 1,
            sign=signer.headers,
            retried=RETRIED_SIGNED,
        )

    def _backoff(self) -> Backoff:
        base = self._settings.backoff_base_seconds
        return Backoff(base, base * 128)
