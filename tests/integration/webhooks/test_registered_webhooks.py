"""Registered webhooks: each request is signed, a rotation loses nothing, an address leads where it may."""

import asyncio
import contextlib
import io
import json
import logging
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, LiteralString
from unittest import mock

import psycopg
import pytest
import structlog
from aiohttp import web
from prometheus_client import CollectorRegistry, Counter

from fencepost import Fencepost
from fencepost.embedded import Database
from fencepost.errors import Duplicate, InvalidInput, NotFound
from fencepost.kernel.call import Call
from fencepost.logs import configure_logging
from fencepost.outbox import webhook_relays
from fencepost.outbox.settings import OutboxSettings
from fencepost.webhooks import HEADER, InvalidSignature, calls, verify
from tests.waiting_for import found, until

QUICK = OutboxSettings(backoff_base_seconds=0.02, idle_seconds=0.02, webhook_loopback=True)


@dataclass
class SignedReceiver:
    """Accepts what one of its secrets signed, and answers 401 to everything else; or `answers`, in turn."""

    secrets: list[str] = field(default_factory=list[str])
    answers: list[int] = field(default_factory=list[int])
    accepted: list[Any] = field(default_factory=list[Any])
    keys: list[str] = field(default_factory=list[str])
    signatures: list[str] = field(default_factory=list[str])
    refused: int = 0
    followed: int = 0
    url: str = ""

    async def take(self, request: web.Request) -> web.StreamResponse:
        body, header = await request.read(), request.headers.get(HEADER, "")
        self.signatures.append(header)
        if self.answers:
            status = self.answers.pop(0)
            return web.Response(status=status, headers={"Location": self.url.replace("/in", "/inside")})
        try:
            verify(body, header, self.secrets)
        except InvalidSignature:
            self.refused += 1
            return web.Response(status=401)
        self.accepted.append(json.loads(body))
        self.keys.append(request.headers["Idempotency-Key"])
        return web.Response()

    async def inside(self, request: web.Request) -> web.StreamResponse:
        self.followed += 1
        return web.Response()


@asynccontextmanager
async def receiving() -> AsyncGenerator[SignedReceiver]:
    receiver = SignedReceiver()
    app = web.Application()
    app.router.add_post("/in", receiver.take)
    app.router.add_route("*", "/inside", receiver.inside)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}/in"
    try:
        yield receiver
    finally:
        await runner.cleanup()


@asynccontextmanager
async def delivering(fp: Fencepost, settings: OutboxSettings = QUICK) -> AsyncGenerator[None]:
    errors = Counter("errors", "Errors.", ("loop",), registry=CollectorRegistry())
    with mock.patch.object(webhook_relays, "REGISTRY_SECONDS", 0.05):
        async with webhook_relays.delivering(fp, settings, errors):
            yield


async def put(fp: Fencepost, *numbers: int, channel: str = "audit") -> None:
    for number in numbers:
        async with fp.transaction() as tx:
            await fp.outbox.put(tx, channel, {"number": number}, key="one")


async def registered(fp: Fencepost, receiver: SignedReceiver, **how: Any) -> str:
    secret = await fp.run(calls.add("audit", receiver.url, how.get("topics", []), "ann"))
    assert secret is not None
    receiver.secrets = [secret]
    return secret


async def test_a_request_is_signed_and_arrives_in_order(database: Database) -> None:
    async with Fencepost(database.url) as fp, receiving() as receiver:
        secret = await registered(fp, receiver)
        await put(fp, 1, 2, 3)
        async with delivering(fp):
            await until("all arrive", lambda: len(receiver.accepted) == 3)
    assert secret.startswith("whsec_")
    assert [one["number"] for one in receiver.accepted] == [1, 2, 3]
    assert receiver.refused == 0


@pytest.mark.parametrize("receiver_is", ["early", "late"])
async def test_a_rotation_loses_nothing_whenever_the_receiver_learns_the_new_secret(
    database: Database, receiver_is: str
) -> None:
    async with Fencepost(database.url) as fp, receiving() as receiver:
        old = await registered(fp, receiver)
        async with delivering(fp):
            await put(fp, 1)
            await until("the first arrives", lambda: len(receiver.accepted) == 1)
            new = await fp.run(calls.rotate("audit", 3600, "ann"))
            receiver.secrets = [new] if receiver_is == "early" else [old]
            await put(fp, 2, 3)
            await until("the others arrive", lambda: len(receiver.accepted) == 3)
            # A relay signs with the old secret alone for a moment more, and a late receiver is told before
            # it drops that one.
            sent = 3
            while receiver.signatures[-1].count("v1=") < 2:
                sent += 1
                await put(fp, sent)
                await until("another arrives", lambda: len(receiver.accepted) >= sent)  # noqa: B023
            receiver.secrets = [new]
            await put(fp, sent + 1)
            await until("the last arrives", lambda: len(receiver.accepted) == sent + 1)
    assert [one["number"] for one in receiver.accepted] == list(range(1, sent + 2))
    assert receiver.signatures[-1].count("v1=") == 2
    # An early receiver refuses what has the old signature alone; it is retried.
    assert receiver.refused == 0 or receiver_is == "early"


async def test_a_rotation_without_an_overlap_is_refused_until_the_receiver_knows_and_loses_nothing(
    database: Database,
) -> None:
    async with Fencepost(database.url) as fp, receiving() as receiver:
        await registered(fp, receiver)
        new = await fp.run(calls.rotate("audit", 0, "ann"))
        await put(fp, 1)
        async with delivering(fp):
            await until("it is refused", lambda: receiver.refused > 0)
            receiver.secrets = [new]
            await until("it arrives", lambda: len(receiver.accepted) == 1)
    assert {one.count("v1=") for one in receiver.signatures} == {1}


async def test_the_old_secret_ends_with_the_overlap(database: Database, clock: Any) -> None:
    async with Fencepost(database.url) as fp:
        old = await fp.run(calls.add("audit", "https://a.example", [], "ann"))
        new = await fp.run(calls.rotate("audit", 3600, "ann"))
        (both,) = await fp.run(calls.deliverable())
        clock.advance(3601)
        (one,) = await fp.run(calls.deliverable())
    assert (both.secrets, one.secrets) == ([new, old], [new])
    assert str(new) not in repr(both)


async def test_secrets_are_bounded(database: Database) -> None:
    async with Fencepost(database.url) as fp:
        await fp.run(calls.add("audit", "https://a.example", [], "ann"))
        for _ in range(4):
            await fp.run(calls.rotate("audit", 3600, "ann"))
        with pytest.raises(InvalidInput, match="shorter overlap"):
            await fp.run(calls.rotate("audit", 3600, "ann"))
        await fp.run(calls.rotate("audit", 0, "ann"))
        assert [len(one.secrets) for one in await fp.run(calls.deliverable())] == [1]


async def test_a_paused_webhook_keeps_its_messages(database: Database) -> None:
    async with Fencepost(database.url) as fp, receiving() as receiver, receiving() as other:
        await registered(fp, receiver)
        await fp.run(calls.add("other", other.url, [], "ann"))
        (status,) = [one for one in await fp.run(calls.deliverable()) if one.name == "other"]
        other.secrets = status.secrets
        await fp.run(calls.pause("audit", "ann"))
        async with delivering(fp):
            await put(fp, 1)
            await put(fp, 2, channel="other")
            await until("the other is told", lambda: len(other.accepted) == 1)
            assert receiver.accepted == []
            await fp.run(calls.pause("audit", "ann", is_paused=False))
            await until("it arrives", lambda: len(receiver.accepted) == 1)


async def test_a_changed_address_gets_what_waits(database: Database) -> None:
    async with Fencepost(database.url) as fp, receiving() as receiver:
        secret = await fp.run(calls.add("audit", "http://127.0.0.1:9/gone", [], "ann"))
        receiver.secrets = [str(secret)]
        await put(fp, 1)
        async with delivering(fp):
            tried = "select max(attempts) > 0 from fencepost.outbox_messages"
            await until_true(database, "it is tried", tried)
            assert await fp.run(calls.change("audit", "ann", url=receiver.url)) is None
            await until("it arrives", lambda: len(receiver.accepted) == 1)


async def until_true(database: Database, condition: str, query: LiteralString) -> None:
    with database.connect_admin() as admin:
        admin.autocommit = True
        await until(condition, lambda: admin.execute(query).fetchone() == (True,))


async def test_what_was_not_delivered_is_listed_and_delivered_again_under_its_key(database: Database) -> None:
    async with Fencepost(database.url) as fp, receiving() as receiver:
        await registered(fp, receiver)
        receiver.answers = [404]
        async with delivering(fp):
            await put(fp, 1)
            (dead,) = await found(
                "it is dead", lambda: fp.run(calls.dead_messages("audit", 10)), lambda seen: len(seen) == 1
            )
            assert (await fp.run(calls.listing()))[0].dead == 1
            assert (dead.key, dead.attempts) == ("one", 1)
            await fp.run(calls.redeliver(dead.id, "ann"))
            await until("it arrives", lambda: len(receiver.accepted) == 1)
        with pytest.raises(NotFound):
            await fp.run(calls.redeliver(dead.id + 1000, "ann"))
    assert receiver.keys == [f"fencepost-outbox-{dead.id}"]


async def test_messages_of_a_removed_webhook_are_dead_and_its_secrets_gone(database: Database) -> None:
    async with Fencepost(database.url) as fp:
        await fp.run(calls.add("audit", "https://a.example", [], "ann"))
        await put(fp, 1, 2)
        assert await fp.run(calls.remove("audit", "ann")) == 2
        assert [one.last_error for one in await fp.run(calls.dead_messages("audit", 9))] == [
            "the webhook was removed"
        ] * 2
        assert await fp.run(calls.deliverable()) == []
        gone: list[Call[Any]] = [
            calls.rotate("audit", 1, "ann"),
            calls.remove("audit", "ann"),
            calls.pause("audit", "ann"),
        ]
        for call in gone:
            with pytest.raises(NotFound):
                await fp.run(call)


async def test_a_redirect_is_not_followed(database: Database) -> None:
    async with Fencepost(database.url) as fp, receiving() as receiver:
        await registered(fp, receiver)
        receiver.answers = [302, 307]
        await put(fp, 1)
        async with delivering(fp):
            await until("it arrives", lambda: len(receiver.accepted) == 1)
    assert receiver.followed == 0


async def test_a_name_that_leads_to_this_machine_is_not_connected_to(database: Database) -> None:
    """It may have led elsewhere when it was registered: it is looked at when it is connected to."""
    async with Fencepost(database.url) as fp, receiving() as receiver:
        await registered(fp, receiver)
        await put(fp, 1)
        async with delivering(fp, QUICK.model_copy(update={"webhook_loopback": False, "retry_max": 1})):
            (dead,) = await found(
                "it is dead", lambda: fp.run(calls.dead_messages("audit", 10)), lambda seen: len(seen) == 1
            )
    assert "leads to this machine" in str(dead.last_error)
    assert receiver.signatures == []


async def test_a_registered_webhook_has_its_channel_alone(database: Database) -> None:
    """Also while it is paused: an unsigned request would be refused, or worse, accepted."""
    async with Fencepost(database.url) as fp, receiving() as receiver, receiving() as plain:
        await registered(fp, receiver)
        plain.answers = [200] * 9
        settings = QUICK.model_copy(update={"webhooks": f"audit={plain.url}; shop={plain.url}"})
        await fp.run(calls.pause("audit", "ann"))
        await put(fp, 1)
        await put(fp, 2, channel="shop")
        async with delivering(fp, settings):
            await until("the plain one arrives", lambda: len(plain.signatures) == 1)
            await fp.run(calls.pause("audit", "ann", is_paused=False))
            await until("the signed one arrives", lambda: len(receiver.accepted) == 1)
    assert plain.signatures == [""]


async def test_a_database_without_the_component_delivers_by_the_settings(database: Database) -> None:
    with database.connect_admin() as admin:
        admin.execute("delete from fencepost.schema_versions where component = 'webhooks'")
        admin.execute("drop function fencepost.webhook_deliverable")
    async with Fencepost(database.url) as fp, receiving() as plain:
        plain.answers = [200]
        await put(fp, 1, channel="shop")
        async with delivering(fp, QUICK.model_copy(update={"webhooks": f"shop={plain.url}"})):
            await until("it arrives", lambda: len(plain.signatures) == 1)
    assert plain.signatures == [""]


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"name": "a:b"}, "name"),
        ({"name": "-a"}, "name"),
        ({"name": "a" * 65}, "name"),
        ({"url": "ftp://a"}, "url"),
        ({"url": "https://"}, "url"),
        ({"url": "https://a b"}, "url"),
        ({"url": "https://" + "a" * 2048}, "url"),
        ({"topics": ["order"]}, "topics"),
        ({"actor": ""}, "actor"),
    ],
)
async def test_what_cannot_be_registered_is_named(
    database: Database, wrong: dict[str, Any], field: str
) -> None:
    given: dict[str, Any] = {
        "name": "audit",
        "url": "https://a.example",
        "topics": ["orders"],
        "actor": "ann",
        **wrong,
    }
    async with Fencepost(database.url) as fp:
        with pytest.raises(InvalidInput) as refused:
            await fp.run(calls.add(**given))
        assert refused.value.field == field
        assert await fp.run(calls.listing()) == []


async def test_a_name_is_taken_once(database: Database) -> None:
    async with Fencepost(database.url) as fp:
        await fp.run(calls.add("audit", "https://a.example", [], "ann"))
        with pytest.raises(Duplicate):
            await fp.run(calls.add("audit", "https://b.example", [], "ann"))


async def test_a_removal_waits_for_what_is_being_published(database: Database) -> None:
    """A message that commits after its webhook is gone would wait for ever."""
    async with Fencepost(database.url) as fp:
        await fp.run(calls.add("audit", None, ["orders"], "ann"))
        with database.connect_admin() as publisher:
            with publisher.transaction():
                publisher.execute(PUBLISH)
                removal = asyncio.create_task(fp.run(calls.remove("audit", "ann")))
                await until_true(database, "it waits", WAITS)
                assert not removal.done()
            assert await removal == 1


PUBLISH: LiteralString = "select fencepost._webhook_publish('orders', 'order:1', 'order-1-1', '{}', null)"
WAITS: LiteralString = """
    select exists (select from pg_stat_activity
                   where datname = current_database() and wait_event_type = 'Lock')
"""
NEVER_READ = (
    "select secret from fencepost.webhook_secret",
    "select url from fencepost.webhook",
    "select secrets from fencepost.webhook_deliverable()",
)


async def test_the_read_only_role_sees_no_secret_and_no_path(database: Database) -> None:
    async with Fencepost(database.url) as fp:
        secret = await fp.run(calls.add("audit", "https://u:pw@a.example:8443/key-in-path?k=v", [], "ann"))
    with psycopg.connect(database.viewer_url, autocommit=True) as viewer:
        for query in NEVER_READ:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                viewer.execute(query.encode())
        shown = viewer.execute("select to_jsonb(w)::text from fencepost.webhooks w").fetchall()
        told = viewer.execute("select * from fencepost.explain('webhook:audit')").fetchall()
    text = repr((shown, told))
    assert "https://a.example:8443" in text
    assert not any(word in text for word in (str(secret), "pw", "key-in-path", "k=v"))


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """What a process with debug logs writes."""
    root, lines = logging.getLogger(), io.StringIO()
    before = (root.handlers, root.level)
    configure_logging(level="debug", form="json", stream=lines)
    yield lines
    root.handlers, root.level = before
    structlog.reset_defaults()


async def test_neither_a_secret_nor_a_path_is_logged(database: Database, log: io.StringIO) -> None:
    async with Fencepost(database.url) as fp, receiving() as receiver:
        secret = await registered(fp, receiver)
        keyed = receiver.url + "?key=hidden-in-the-query"
        await fp.run(calls.change("audit", "ann", url=keyed))
        receiver.answers = [500, 404]
        await put(fp, 1)
        async with delivering(fp):
            await found(
                "it is dead", lambda: fp.run(calls.dead_messages("audit", 10)), lambda seen: len(seen) == 1
            )
    said = log.getvalue()
    assert said
    assert secret not in said
    assert "hidden-in-the-query" not in said


# Planted bugs.


@contextlib.contextmanager
def planted(database: Database, function: str, right: str, wrong: str) -> Any:
    with database.connect_admin() as admin:
        row = admin.execute("select pg_get_functiondef(%s::regproc)", (function,)).fetchone()
        assert row is not None
        assert right in row[0]
        admin.execute(str(row[0]).replace(right, wrong).encode())
    yield


async def test_a_rotation_that_ends_the_old_secret_at_once_would_be_seen(database: Database) -> None:
    with planted(database, "fencepost.webhook_rotate", "v_now + p_overlap", "v_now"):
        async with Fencepost(database.url) as fp, receiving() as receiver:
            await registered(fp, receiver)
            await fp.run(calls.rotate("audit", 3600, "ann"))
            await put(fp, 1)
            async with delivering(fp):
                await until("it is refused", lambda: receiver.refused > 0)
    assert receiver.accepted == []


async def test_a_publication_that_does_not_lock_its_webhook_would_strand_a_message(
    database: Database,
) -> None:
    with planted(database, "fencepost._webhook_publish", " for key share of w", ""):
        async with Fencepost(database.url) as fp:
            await fp.run(calls.add("audit", None, ["orders"], "ann"))
            with database.connect_admin() as publisher, publisher.transaction():
                publisher.execute(PUBLISH)
                assert await fp.run(calls.remove("audit", "ann")) == 0
            assert await fp.run(calls.dead_messages("audit", 9)) == []
