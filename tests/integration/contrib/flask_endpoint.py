"""The endpoint on Flask."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from flask import Flask, Response, abort, request

from fencepost import Fencepost, SyncFencepost, SyncTransaction
from fencepost.contrib.flask import idempotent
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


@dataclass
class FlaskEndpoint:
    app: Flask

    def post(self, key: str | None, word: str, then: str = "return", path: str = "/notes") -> Reply:
        with self.app.test_client() as client:
            response = client.post(path, data=request_body(word, then), headers=request_headers(key))
            headers = {name.lower(): value for name, value in response.headers.items()}
            return Reply(response.status_code, headers, response.get_data())


def make_app(fp: SyncFencepost) -> Flask:
    app = Flask(__name__)

    def write(tx: SyncTransaction) -> Response:
        note = request.get_json(force=True)
        tx.execute(INSERT, (note["word"],))
        if note["then"] == "abort":
            abort(404, "There is no such shelf.")
        if note["then"] == "die":
            tx.execute(DIE)
        if note["then"] == "stream":
            return Response(iter([b"a", b"b"]))
        status, headers, body = returned(note["word"], note["then"])
        return Response(body, status, headers)

    app.post("/notes")(idempotent(fp, scope=SCOPE)(write))
    mine = idempotent(fp, scope=lambda request: f"user:{request.args['user']}")
    app.post("/mine", endpoint="mine")(mine(write))
    app.post("/optional", endpoint="optional")(idempotent(fp, scope=SCOPE, require_key=False)(write))
    return app


@contextmanager
def serve(url: str) -> Generator[Endpoint]:
    with Fencepost(url).sync() as fp:
        yield FlaskEndpoint(make_app(fp))
