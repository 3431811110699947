"""The whole system with marked secrets: whatever is requested, none of them is in a log, a page or a row.

The same requests are hostile: garbage in every path, query and body, and no answer is a failure of ours.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import re
import traceback
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import psycopg
import pytest
from psycopg import sql

from bench import report as bench_report
from bench.report import machine
from fencepost.cli._app import run
from fencepost.embedded import Database, ValkeyServer
from fencepost.embedded._deadline import Deadline
from fencepost.errors import SettingsError
from fencepost.logs import get_logger
from fencepost.redis_streams.connection import connect_sync
from fencepost_nonces._settings import NoncesSettings
from fencepost_nonces.sending._key_store import keys_of
from fencepost_server.console._login import BACK, SIGN_ON
from fencepost_torture import _report as torture_report
from tests.security.canary import (
    NOWHERE,
    PLANTS,
    CanaryServers,
    canary_of,
    heard,
    parrot,
    planted,
    readers,
    secret_settings,
)
from tests.security.canary_app import BY_SESSION, CanaryApp, open_stack, walk
from tests.unit.torture.test_report import outcome

BROKERS = ("paper", "echo", "alpaca", "oanda")
CHANNELS = ("gone", "shop")
VALUES: list[Any] = [
    *(None, True, -1, 2**63, 1.5, "", "x", "\0", "ü", "x" * 600, [], {}, ["x"], {"a": {"b": 1}}),
    *("0x" + "ab" * 20, "1970-01-01T00:00:00Z", "../..", "null"),
]
FIELDS = (
    *("name", "request_id", "player_id", "resources", "items", "broker", "account", "problem", "language"),
    *("source", "signer", "chain_id", "count", "nonce", "hold", "reason", "actor", "expected", "slug"),
    *("password", "role", "starts_at", "to", "value", "data", "submissions", "state", "limit"),
    *("request_ids", "idempotency_key"),
)


@pytest.fixture
def ground(database: Database, redis_url: str) -> Iterator[CanaryServers]:
    with parrot() as address:
        yield CanaryServers(database, redis_url, address)


@pytest.fixture
def stack(
    ground: CanaryServers, valkey: ValkeyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[CanaryApp]:
    with open_stack(ground, valkey, tmp_path, monkeypatch) as stack:
        yield stack


def test_every_secret_setting_has_a_song() -> None:
    assert set(PLANTS) == secret_settings()


def test_settings_tell_no_secret_when_they_are_printed_or_wrong(
    ground: CanaryServers, tmp_path: Path
) -> None:
    environ = planted(ground, tmp_path)
    for reader in readers():
        assert heard(repr(reader.load(environ))) == [], reader
        for name in secret_settings():
            song = canary_of(name)
            # Of a URL only the password is hidden: settings say so.
            for wrong in (
                song,
                f"\n{song}",
                f"=;{song}",
                f"http://u:{song}@[::1",
                f"etcd://u:{song}@h",
                "\0",
            ):
                try:
                    shown = repr(reader.load({**environ, name: wrong}))
                except SettingsError as error:
                    shown = str(error)
                assert heard(shown) == [], (name, wrong)


async def test_a_keystore_that_cannot_be_opened_does_not_tell_its_password(
    ground: CanaryServers, tmp_path: Path
) -> None:
    (tmp_path / "key.json").write_text(json.dumps({"crypto": {}, "version": 3}))
    environ = planted(ground, tmp_path) | {"NONCES_REMOTE_SIGNER": "", "NONCES_KEYSTORE": str(tmp_path)}

    with pytest.raises(SettingsError) as failure:
        await keys_of(NoncesSettings.load(environ))

    assert heard("".join(traceback.format_exception(failure.value))) == []


def test_no_secret_is_sung_and_no_request_is_a_failure_of_ours(
    stack: CanaryApp, capsys: pytest.CaptureFixture[str]
) -> None:
    leave_reports(stack)
    messages = send_messages(stack)
    with stack.program() as program, stack.admin() as admin, stack.stranger() as stranger:
        answers = [*ask_for_secrets(program), *sign_on(stranger), *hostile_requests(stack, admin, program)]
        # What they said is stored, and shown on pages.
        Deadline(60, "every message was tried").wait(lambda: tried(stack, messages))
        walked = list(walk(stack, admin, program))
        strangers = [
            stranger.get("/orders"),
            stranger.get("/console/jobs", headers={"authorization": f"Bearer x{canary_of('HTTP_TOKEN')}"}),
        ]
    failures = [
        f"{a.request.method} {a.request.url.path}: {a.status_code} {a.text[:200]}"
        for a in (*answers, *(answer for _, answer in walked))
        if a.status_code == 500
    ]
    assert failures == []
    assert {answer.status_code for answer in strangers} <= {401, 303, 403}
    shut = {route.path for route, answer in walked if answer.status_code in {401, 403}}
    assert shut == {BACK, "/console/enter"}, "an administrator comes in wherever no ticket is asked for"
    pages = [answer for _, answer in walked if answer.headers.get("content-type", "").startswith("text/html")]
    assert len({answer.url.path for answer in pages if answer.status_code == 200}) > 40

    found = {f"GET {answer.url.raw_path.decode()}": told(answer) for _, answer in walked}
    found |= {f"{a.request.method} {a.url.path} {number}": told(a) for number, a in enumerate(answers)}
    found |= commands(stack, messages, capsys)
    found |= stack.places()
    leaks = [f"{place}: {', '.join(names)}" for place, text in found.items() if (names := heard(text))]
    assert not leaks, "\n".join(leaks)

    # What was looked through is where it would have been.
    assert "key-alpaca" in found["GET /orders"]
    assert "torture, seed 7" in found["GET /console/reports"]
    assert heard_where_it_is_planted(stack, capsys) == []


def told(answer: httpx.Response) -> str:
    return f"{answer.headers}{answer.text}"


def leave_reports(stack: CanaryApp) -> None:
    """As runs leave them that were started where these secrets are."""
    torture_report.write(torture_report.facts_of(outcome(), {}), stack.folder / "torture")
    bench_report.write(bench_report.Report("kernel", True, [], [], machine()), stack.folder / "bench")


def send_messages(stack: CanaryApp) -> list[int]:
    """To receivers that are away, and to one that repeats what it is sent."""
    with psycopg.connect(stack.database.url, autocommit=True) as connection:
        put = "select fencepost.outbox_put(%s, 'k1', '{}'::jsonb)"
        rows = [connection.execute(put, (channel,)).fetchone() for channel in CHANNELS]
    return [int(row[0]) for row in rows if row is not None]


def ask_for_secrets(program: httpx.Client) -> Iterator[httpx.Response]:
    """Requests that make the system use its secrets; errors speak of where they led."""
    for broker in BROKERS:
        order = {"broker": broker, "account": "a", "symbol": "ABC", "intent": "BUY", "qty": "1"}
        body = {**order, "idempotency_key": f"key-{broker}", "time_in_force": "DAY"}
        placed = program.post("/orders", json=body, headers={"idempotency-key": f"key-{broker}"})
        assert placed.status_code == 202, placed.text
        yield placed
    for chain in (1, 2):
        transaction = {"chain_id": chain, "signer": "0x" + "ab" * 20, "to": "0x" + "cd" * 20}
        yield program.post("/transactions", json=transaction, headers={"idempotency-key": f"{chain}"})
        yield program.post(f"/nonces/{chain}/0x{'ab' * 20}/reserve", json={"count": 1})
    yield program.put("/problems/echo", content=package())
    yield program.get("/judge/api/workers")


def package() -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("1.in", "1\n")
        archive.writestr("1.ans", "1\n")
    return content.getvalue()


def sign_on(stranger: httpx.Client) -> Iterator[httpx.Response]:
    """Up to the point where our secret goes to the provider, who repeats it."""
    sent = stranger.get(SIGN_ON)
    assert sent.status_code == 303, sent.text
    state = parse_qs(urlsplit(sent.headers["location"]).query)["state"][0]
    back = stranger.get(BACK, params={"state": state, "code": "x"})
    assert back.status_code in {401, 403}, back.text
    yield from (sent, back)


def tried(stack: CanaryApp, messages: list[int]) -> bool:
    """Whether every message has an error, and every order too."""
    with stack.database.connect_admin() as admin:
        row = admin.execute(
            "select count(*) from fencepost.outbox_messages where last_error is not null and"
            " (id = any(%s) or channel like 'orders:%%')",
            (messages,),
        ).fetchone()
    return row is not None and row[0] >= len(BROKERS) + len(CHANNELS)


def commands(stack: CanaryApp, messages: list[int], capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """What the command line says of this system, and of one that is not there."""
    subjects = [f"outbox:{message}" for message in messages]
    asked = [("doctor",), ("doctor", "--json"), ("status",), ("status", "--json")]
    asked += [("explain", subject) for subject in subjects]
    capsys.readouterr()
    found = {" ".join(words): said(words, capsys) for words in asked}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DATABASE_URL", f"postgresql://ada:{canary_of('DATABASE_URL')}@{NOWHERE}/x")
        patch.setenv("REDIS_URL", f"redis://ada:{canary_of('REDIS_URL')}@{NOWHERE}/0")
        for words in (("doctor",), ("status",), ("explain", "outbox:1")):
            found[f"{' '.join(words)}, servers away"] = said(words, capsys)
    return found


def said(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> str:
    run(words)
    captured = capsys.readouterr()
    assert captured.out or captured.err, words
    return captured.out + captured.err


def heard_where_it_is_planted(stack: CanaryApp, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """A leak in every place is noticed there: the places where it was not."""
    song = canary_of("HTTP_TOKEN")
    with stack.database.connect_admin() as admin:
        admin.execute("create table public.leak as select %s::bytea as leak", (song.encode(),))
        with pytest.raises(psycopg.errors.UndefinedFunction):
            admin.execute(sql.SQL("select leak({})").format(song))
        admin.execute("select fencepost.job_submit(%s, 'leak', '{}')", (song,))
    get_logger("leak").warning("leak", what=song)
    with contextlib.closing(connect_sync(stack.redis_url, reply_seconds=10)) as store:
        store.set("leak", song)
        store.eval("redis.log(redis.LOG_WARNING, ARGV[1])", 0, song)
    (stack.folder / "leak").write_text(song)
    with stack.admin() as browser:
        found = {**stack.places(), "a page": browser.get("/console/jobs").text}
    found["the command line"] = said(("status",), capsys)
    return [place for place, text in found.items() if "HTTP_TOKEN" not in heard(text)]


def hostile_requests(
    stack: CanaryApp, admin: httpx.Client, program: httpx.Client
) -> Iterator[httpx.Response]:
    chance = random.Random(7)  # noqa: S311 - Repeatable garbage, no secret.
    for path, methods in stack.app.openapi()["paths"].items():
        for method in methods:
            for _ in range(2):
                where = re.sub(
                    r"\{\w+\}", lambda _: chance.choice(["1", "x", "-1", "ü", "9" * 25, "0x1"]), path
                )
                if not where.endswith("/events"):
                    yield send(admin if BY_SESSION.match(path) else program, method, where, chance)


def send(client: httpx.Client, method: str, path: str, chance: random.Random) -> httpx.Response:
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
        headers={"content-type": "application/json", "idempotency-key": "x"},
    )
