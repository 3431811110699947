"""The endpoint on FastAPI."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
from anyio.from_thread import BlockingPortal, start_blocking_portal
from fastapi import APIRouter, FastAPI, HTTPException, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from fencepost import Fencepost
from fencepost.contrib.fastapi import Tx, idempotent_route
from tests.integration.contrib.endpoint import (
    DIE,
    INSERT,
    SCOPE,
    Endpoint,
    Reply,
    request_body,
    request_headers,
    returned,
)


class Note(BaseModel):
    word: str
    then: str


@dataclass
class FastAPIEndpoint:
    portal: BlockingPortal
    app: FastAPI

    def post(self, key: str | None, word: str, then: str = "return", path: str = "/notes") -> Reply:
        response = self.portal.call(self._post, path, request_body(word, then), request_headers(key))
        return Reply(response.status_code, dict(response.headers), response.content)

    async def _post(self, path: str, body: bytes, headers: dict[str, str]) -> httpx.Response:
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://testserver") as client:
            return await client.post(
                path, content=body, headers={**headers, "Content-Type": "application/json"}
            )


def make_app(fp: Fencepost) -> FastAPI:
    async def write(note: Note, tx: Tx) -> Response:
        await tx.execute(INSERT, (note.word,))
        if note.then == "abort":
            raise HTTPException(404, "There is no such shelf.")
        if note.then == "die":
            await tx.execute(DIE)
        if note.then == "stream":
            return StreamingResponse(iter([b"a", b"b"]))
        status, headers, body = returned(note.word, note.then)
        return Response(body, status, headers)

    app = FastAPI()
    notes = APIRouter(route_class=idempotent_route(fp, scope=SCOPE))
    notes.post("/notes")(write)
    mine = APIRouter(
        route_class=idempotent_route(fp, scope=lambda request: f"user:{request.query_params['user']}")
    )
    mine.post("/mine")(write)
    optional = APIRouter(route_class=idempotent_route(fp, scope=SCOPE, require_key=False))
    optional.post("/optional")(write)
    for router in (notes, mine, optional):
        app.include_router(router)
    return app


@contextmanager
def serve(url: str) -> Generator[Endpoint]:
    fp = Fencepost(url)
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(fp):
        yield FastAPIEndpoint(portal, make_app(fp))
