"""Wake-ups from PostgreSQL: one connection that listens, and the callbacks of each topic."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg

from fencepost.backoff import Backoff
from fencepost.kernel import _notify as notify
from fencepost.logs import get_logger
from fencepost.signals import announce

_log = get_logger(__name__)
CONNECT_SECONDS = 5
RECONNECTS = Backoff(0.1, 5.0, jitter=0)


class Listener:
    """Calls back when a topic is notified. Without it everything still works, one poll later."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._callbacks: dict[str, list[tuple[Callable[[], None], bool]]] = {}
        """By topic: the callbacks, and whether each is also called after a reconnect."""

    def on(self, topic: str, callback: Callable[[], None], *, in_doubt: bool = True) -> None:
        """Notifications sent while the connection was lost are unknown: after a reconnect every callback is
        called, except those whose notification is repeated until it is received (`in_doubt=False`)."""
        self._callbacks.setdefault(topic, []).append((callback, in_doubt))

    def off(self, topic: str, callback: Callable[[], None]) -> None:
        """Stop calling this function for notifications of the topic."""
        left = [each for each in self._callbacks.pop(topic, []) if each[0] is not callback]
        if left:
            self._callbacks[topic] = left

    async def run(self) -> None:
        """Listen until cancelled, and reconnect after every loss."""
        losses = 1
        while True:
            try:
                async with await psycopg.AsyncConnection.connect(
                    self._url, autocommit=True, connect_timeout=CONNECT_SECONDS
                ) as connection:
                    await connection.execute(notify.LISTEN)
                    self._wake_in_doubt()
                    announce("listener.listening")
                    losses = 1
                    await self._hear(connection)
            except Exception as error:
                _log.warning("listener_lost", error=str(error), retry_seconds=RECONNECTS.seconds(losses))
            await asyncio.sleep(RECONNECTS.seconds(losses))
            losses += 1

    async def _hear(self, connection: psycopg.AsyncConnection[Any]) -> None:
        async for notice in connection.notifies():
            for callback, _ in self._callbacks.get(notice.payload, ()):
                callback()

    def _wake_in_doubt(self) -> None:
        for callbacks in tuple(self._callbacks.values()):
            for callback, in_doubt in callbacks:
                if in_doubt:
                    callback()
