"""The whole house with secrets that sing: whatever is asked of it, none of them is in a log, a page or a row.

The same requests are hostile: garbage in every path, query and body, and no answer is a failure of ours.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from psycopg import sql

from fencepost.cli.web_service import web_service
from fencepost.drive.connection import connect_sync
from fencepost.embedded import Database
from fencepost.embedded.deadline import Deadline
from fencepost.logs import configure_logging
from fencepost.metrics import Metrics
from fencepost.settings import Settings
from fencepost.whereabouts import Whereabouts

CANARY = "canary-7f3a9c1e5b2d"
# Nobody listens there; the errors of whoever tries are what might sing.
NOWHERE = f"http://parrot:{CANARY}@127.0.0.1:9"
ORDER: dict[str, Any] = {
    "idempotency_key": "k1",
    "broker": "paper",
    "account": "a",
    "symbol": "ABC",
    "intent": "BUY",
    "qty": "1",
    "time_in_force": "DAY",
}
VALUES: list[Any] = [
    *(None, True, -1, 2**63, 1.5, "", "x", "\0", "ü", "x" * 600, [], {}, ["x"], {"a": {"b": 1}}),
    *("0x" + "ab" * 20, "1970-01-01T00:00:00Z", "../..", "null"),
]
FIELDS = (
    *(
        "name",
        "request_id",
        "player_id",
        "resources",
        "items",
        "broker",
        "account",
        "problem",
        "language",
        "source",
    ),
    *(
        "signer",
        "chain_id",
        "count",
        "nonce",
        "hold",
        "reason",
        "actor",
        "expected",
        "slug",
        "password",
        "role",
    ),
    *("starts_at", "to", "value", "data", "submissions", "state", "limit", "request_ids", "idempotency_key"),
)


@dataclass
class House:
    client: httpx.Client
    logs: io.StringIO
    database: Database
    redis_url: str

    def rows(self) -> str:
        """Everything that is stored, as text."""
        with self.database.connect_admin() as admin:
            tables = admin.execute(
                "select schemaname, tablename from pg_tables where schemaname in ('fencepost', 'public')"
            ).fetchall()
            statement = sql.SQL("select t::text from {} t")
            return "\n".join(
                str(row[0])
                for table in tables
                for row in admin.execute(statement.format(sql.Identifier(*table)))
            )

    def keys(self) -> str:
        store: Any = connect_sync(self.redis_url, reply_seconds=10)
        with contextlib.closing(store):
            return repr([(key, store.dump(key)) for key in store.scan_iter()])


@pytest.fixture
def house(
    database: Database, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[House]:
    logs = io.StringIO()
    for name, value in {
        "DATABASE_URL": database.url.replace("@/", f":{CANARY}@/"),
        "REDIS_URL": redis_url,
        "HTTP_TOKEN": CANARY,
        "NONCES_CHAINS": f"1={NOWHERE}/{CANARY}",
        "NONCES_KEYSTORE_PASSWORD": CANARY,
        "BROKER_KEY": CANARY,
        "ORDERS_BROKERS": json.dumps(
            {
                "paper": {
                    "base_url": NOWHERE,
                    "headers": {"Authorization": "Bearer ${BROKER_KEY}"},
                    "promise": "nothing",
                    "connect_seconds": 1,
                }
            }
        ),
        "FENCEPOST_DATA_DIR": str(tmp_path),
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    configure_logging(level="debug", form="json", stream=logs)
    settings = Settings.load()
    assert settings.database_url is not None
    place = Whereabouts(
        "the test", "", database.admin_url, settings.database_url, database.viewer_url, redis_url
    )
    server = web_service(settings, place, Metrics())
    server.start()
    try:
        with httpx.Client(base_url=server.url, timeout=60) as client:
            yield House(client, logs, database, redis_url)
    finally:
        server.stop()


def test_no_secret_is_sung_and_no_request_is_a_failure_of_ours(house: House) -> None:
    chance = random.Random(7)  # noqa: S311 - Repeatable garbage, no secret.
    client = house.client
    authorized = {"authorization": f"Bearer {CANARY}"}
    # Its errors speak of the broker's address, and are stored.
    placed = client.post("/orders", json=ORDER, headers={**authorized, "idempotency-key": "k1"})
    assert placed.status_code == 202, placed.text
    answers = [placed, *hostile_requests(client, authorized, chance)]
    strangers = [
        client.get("/orders"),
        client.get("/console/jobs", headers={"authorization": f"Bearer x{CANARY}"}),
    ]
    Deadline(60, "the order was tried").wait(lambda: tried(house))

    failures = [
        f"{a.request.method} {a.request.url.path}: {a.status_code} {a.text[:200]}"
        for a in answers
        if a.status_code == 500
    ]
    assert failures == []
    assert {answer.status_code for answer in strangers} <= {401, 303, 403}
    pages = "\n".join(f"{answer.headers}{answer.text}" for answer in [*answers, *strangers])
    found = {"a page": pages, "a row": house.rows(), "Redis": house.keys(), "a log": house.logs.getvalue()}
    assert [place for place, text in found.items() if CANARY in text] == []
    # What was looked through is where it would have been.
    assert '"k1"' in pages
    assert "k1" in found["a row"]
    assert found["a log"]


def tried(house: House) -> bool:
    with house.database.connect_admin() as admin:
        row = admin.execute("select count(*) from fencepost.outbox where last_error is not null").fetchone()
    return row is not None and row[0] > 0


def hostile_requests(
    client: httpx.Client, headers: dict[str, str], chance: random.Random
) -> Iterator[httpx.Response]:
    described = client.get("/openapi.json", headers=headers).json()
    for path, methods in described["paths"].items():
        for method in methods:
            for _ in range(3):
                where = re.sub(
                    r"\{\w+\}", lambda _: chance.choice(["1", "x", "-1", "ü", "9" * 25, "0x1"]), path
                )
                yield send(client, method, where, headers, chance)


def send(
    client: httpx.Client, method: str, path: str, headers: dict[str, str], chance: random.Random
) -> httpx.Response:
    query = {chance.choice(FIELDS): str(chance.choice(VALUES))[:50] for _ in range(2)}
    content = chance.choice(
        [
            b"",
            b"\xff\x00{",
            b"[" * 5000,
            json.dumps(chance.choice(VALUES)).encode(),
            json.dumps({name: chance.choice(VALUES) for name in chance.sample(FIELDS, 8)}).encode(),
        ]
    )
    return client.request(
        method,
        path,
        params={name: value.replace("\0", "") for name, value in query.items()},
        content=None if method in {"get", "head"} else content,
        headers={**headers, "content-type": "application/json", "idempotency-key": "x"},
    )
