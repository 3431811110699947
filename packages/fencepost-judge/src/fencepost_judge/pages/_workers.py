"""Which workers judge, their load, and what could not be judged."""

from __future__ import annotations

from typing import Any

from fastapi import Request, Response

from fencepost.errors import FencepostError
from fencepost.kernel import dead_letter
from fencepost_judge._access import PAGES_ROOT
from fencepost_judge._service import QUEUE
from fencepost_judge.pages._page_router import PageRouter


def add(router: PageRouter) -> None:
    @router.router.get(f"{PAGES_ROOT}/workers")
    async def workers(request: Request) -> Response:
        facts: dict[str, Any] = {
            "workers": (),
            "complaint": None,
            "dead": await router.fp.run(dead_letter.count(dead_letter.Filter(queue=QUEUE))),
            "queue": QUEUE,
        }
        try:
            facts["workers"] = await router.judging.workers()
        except FencepostError as error:
            # If the directory is unavailable, only the list is missing.
            facts["complaint"] = str(error)
        return router.show(request, "workers.html", "Workers", facts)
