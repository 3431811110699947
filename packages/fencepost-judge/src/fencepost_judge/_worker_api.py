"""Workers over HTTP: which workers judge, which languages they compile, and their load."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter

from fencepost_judge._service import Judging


def add(router: APIRouter, judging: Judging) -> None:
    @router.get("/judge/api/workers")
    async def workers() -> list[dict[str, Any]]:
        """Every listed worker in order of registration, including lost ones and those that left."""
        return [asdict(one) for one in await judging.workers()]
