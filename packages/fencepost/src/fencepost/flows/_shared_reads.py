"""XREAD for all key groups of a worker, over a few connections.

A blocking read occupies its connection for as long as it waits. With one for each group, a worker with many
groups would use all connections that its client, or Redis, allows. So groups share connections: a reader
waits for the streams of all its groups with one command, and gives each group its entries. XREAD removes
nothing: entries for a group that has left meanwhile stay in the stream.

In a cluster one command cannot wait for the streams of two groups, which lie in different slots: a reader
that has several asks for what is there, every few milliseconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fencepost.flows._redis_client import entries_of
from fencepost.redis_streams.connection import named_together

COUNT = 4
SHARED_SECONDS = 0.1
"""The longest wait of a reader that several groups share: a group that joins meanwhile is not part of that
wait."""
POLL_SECONDS = 0.02
Found = dict[bytes, Any]


@dataclass(eq=False, slots=True)
class _Wait:
    streams: Mapping[str, str]
    """Each with the last id that the group has."""
    until: float
    found: asyncio.Future[Found]


class SharedReads:
    """At most `connections` of them wait at once, for any number of groups."""

    def __init__(self, redis: Any, groups: int, connections: int) -> None:
        count = max(1, min(groups, connections))
        self._readers = [_Reader(redis, shared=groups > connections) for _ in range(count)]

    async def read(self, group: int, streams: Mapping[str, str], wait_seconds: float) -> Found:
        """Entries by stream, a few of each; none when nothing arrived in time."""
        return await self._readers[group % len(self._readers)].read(streams, wait_seconds)

    async def close(self) -> None:
        for reader in self._readers:
            await reader.close()


class _Reader:
    def __init__(self, redis: Any, *, shared: bool) -> None:
        self._redis = redis
        self._shared = shared
        self._waits: list[_Wait] = []
        self._running: asyncio.Task[None] | None = None

    async def read(self, streams: Mapping[str, str], wait_seconds: float) -> Found:
        if self._shared and self._running is not None and not self._running.done():
            # The reader is blocked in a wait for others: entries that exist already can be read without
            # waiting.
            found = await self._ask(streams, None)
            if found:
                return found
        loop = asyncio.get_running_loop()
        wait = _Wait(streams, loop.time() + wait_seconds, loop.create_future())
        self._waits.append(wait)
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run(), name="fencepost-flow-reads")
        try:
            return await wait.found
        finally:
            if wait in self._waits:
                self._waits.remove(wait)

    async def close(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waits:
            waits = list(self._waits)
            patience = max(0.001, min(wait.until for wait in waits) - loop.time())
            streams = {stream: last for wait in waits for stream, last in wait.streams.items()}
            try:
                answer = await self._ask(streams, min(patience, SHARED_SECONDS) if self._shared else patience)
            except Exception as error:
                for wait in waits:
                    self._end(wait, error=error)
                continue
            for wait in waits:
                found = {name: answer[name] for name in map(str.encode, wait.streams) if name in answer}
                if found or loop.time() >= wait.until:
                    self._end(wait, found)

    def _end(self, wait: _Wait, found: Found | None = None, error: Exception | None = None) -> None:
        if wait in self._waits:
            self._waits.remove(wait)
        if wait.found.done():
            return
        if error is not None:
            wait.found.set_exception(error)
        else:
            wait.found.set_result(found or {})

    async def _ask(self, streams: Mapping[str, str], wait_seconds: float | None) -> Found:
        parts = named_together(self._redis, streams)
        if len(parts) > 1:
            return await self._ask_each(parts, streams, wait_seconds)
        waiting = () if wait_seconds is None else ("BLOCK", max(1, round(wait_seconds * 1000)))
        command = ("XREAD", "COUNT", COUNT, *waiting, "STREAMS", *streams, *streams.values())
        return entries_of(await self._redis.execute_command(*command))

    async def _ask_each(
        self, parts: Sequence[Sequence[str]], streams: Mapping[str, str], wait_seconds: float | None
    ) -> Found:
        pipe = self._redis.pipeline(transaction=False)
        for part in parts:
            pipe.execute_command("XREAD", "COUNT", COUNT, "STREAMS", *part, *(streams[name] for name in part))
        found: Found = {}
        for answer in await pipe.execute():
            found |= entries_of(answer)
        if not found and wait_seconds is not None:
            await asyncio.sleep(min(wait_seconds, POLL_SECONDS))
        return found
