"""One client's connection through a proxy."""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import suppress

from fencepost.testing._fault_state import DropRule, FaultState
from fencepost.testing._postgres_protocol import Splitter

CHUNK_BYTES = 65536

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class ProxiedConnection:
    """Forwards data in both directions, subject to the current faults."""

    def __init__(
        self,
        client: Stream,
        server: Stream,
        splitters: tuple[Splitter, Splitter],
        fault_state: FaultState,
        turns: Iterator[int],
    ) -> None:
        self._client_reader, self._client_writer = client
        self._server_reader, self._server_writer = server
        self._requests, self._replies = splitters
        self._fault_state = fault_state
        self._turns = turns
        # A side that has missed a message is out of step with the protocol, and stays silent.
        self._silent = False
        self.ended = asyncio.Event()

    async def run(self) -> None:
        """Runs until one side ends, or the connection is cut."""
        pumps = [asyncio.create_task(self._pump_requests()), asyncio.create_task(self._pump_replies())]
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        for writer in (self._client_writer, self._server_writer):
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    def cut(self) -> None:
        """Close both sides now; data that was not forwarded yet is lost."""
        self._client_writer.transport.abort()
        self._server_writer.transport.abort()

    async def _pump_requests(self) -> None:
        while data := await self._client_reader.read(CHUNK_BYTES):
            if self._fault_state.reorder_seconds:
                await asyncio.sleep(self._fault_state.held_up_seconds(next(self._turns)))
            passed = b"".join(self._passing(self._requests.feed(data), self._fault_state.on_requests))
            self._server_writer.write(passed)
            await self._server_writer.drain()

    async def _pump_replies(self) -> None:
        while data := await self._server_reader.read(CHUNK_BYTES):
            await asyncio.sleep(self._fault_state.delay_seconds)
            passed = b"".join(self._passing(self._replies.feed(data), self._fault_state.on_replies))
            self._client_writer.write(passed)
            await self._client_writer.drain()

    def _passing(self, messages: Iterable[bytes], drop_rules: list[DropRule]) -> Iterator[bytes]:
        for message in messages:
            self._silent = self._silent or self._fault_state.swallows
            drop_rule = None if self._silent else next((a for a in drop_rules if a.catches(message)), None)
            if drop_rule is not None and not drop_rule.half_open:
                self.cut()
            if drop_rule is not None:
                self._silent = True
            if not self._silent:
                yield message
