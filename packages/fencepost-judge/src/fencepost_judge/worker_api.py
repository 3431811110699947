"""Workers over HTTP: who judges, what they can compile, and how loaded they are."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter

from fencepost_judge.service import Judging


def add(router: APIRouter, judging: Judging) -> None:
    @router.get("/judge/api/workers")
    async def workers() -> list[dict[str, Any]]:
        """Everybody who is listed, by the order in which they came; also who was lost and who left."""
        return [asdict(one) for one in await judging.workers()]
