"""A receiver of webhooks: a real server in the test's own event loop, which may lose its first answers."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web


@dataclass
class Receiver:
    """`answers` are given in turn, then 200, after `seconds`. An answer of 0 takes it and hangs up."""

    answers: list[int] = field(default_factory=list[int])
    got: list[tuple[str, Any]] = field(default_factory=list[tuple[str, Any]])
    traced: list[str] = field(default_factory=list[str])
    authorized: list[str] = field(default_factory=list[str])
    url: str = ""
    seconds: float = 0.0

    async def take(self, request: web.Request) -> web.StreamResponse:
        self.got.append((request.headers["Idempotency-Key"], await request.json()))
        self.traced.append(request.headers.get("traceparent", ""))
        self.authorized.append(request.headers.get("Authorization", ""))
        await asyncio.sleep(self.seconds)  # A receiver that is slow.
        status = self.answers.pop(0) if self.answers else 200
        if status == 0:
            assert request.transport is not None
            request.transport.close()
        return web.Response(status=status or 200)


@asynccontextmanager
async def receiving(*answers: int) -> AsyncGenerator[Receiver]:
    receiver = Receiver(list(answers))
    app = web.Application()
    app.router.add_post("/hook", receiver.take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    try:
        yield receiver
    finally:
        await runner.cleanup()
