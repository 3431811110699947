# mypy: ignore-errors
# pyright: basic, reportMissingImports=false
# ruff: noqa: ANN001
# The packages it imports are those of an environment of its own, which the checkers here do not see.
"""Tasks of Absurd with steps. A step's own write is a commit of its own: it has no transaction for it."""

from __future__ import annotations

import run_absurd
from absurd_sdk import AsyncAbsurd
from handlers import AsyncHandlers
from run_absurd import QUEUE, AbsurdPeer
from runner import STEPS, PeerTask, play


def _app(order: PeerTask) -> AsyncAbsurd:
    app = AsyncAbsurd(order.postgres_url, queue_name=QUEUE)
    handlers = AsyncHandlers(order)

    @app.register_task(name="rows")
    async def rows(params, ctx) -> None:
        for step in range(STEPS):

            async def write(name: str = f"step {step}") -> None:
                await handlers.effect(name)

            await ctx.step(f"step {step}", write)
        handlers.results.count()

    @app.register_task(name="trivial")
    async def trivial(params, ctx) -> None:
        for step in range(STEPS):

            async def nothing(number: int = step) -> int:
                return number

            await ctx.step(f"step {step}", nothing)
        handlers.results.count()

    @app.register_task(name="zombie")
    async def zombie(params, ctx) -> str:
        return await ctx.step("write", handlers.zombie)

    return app


if __name__ == "__main__":
    run_absurd._app = _app
    play(AbsurdPeer())
