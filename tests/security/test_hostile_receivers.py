"""Brokers and webhooks that lead elsewhere: by a redirect, or by a name that points at this machine or at the
address where clouds keep credentials."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from fencepost.client import Fencepost
from fencepost.embedded import Database
from fencepost.http_client import HttpClient, Loopback, NotSent, Request, peer_refusal
from fencepost.kernel.outbox import Message
from fencepost.metrics import Metrics
from fencepost.outbox import webhook_relays
from fencepost.outbox._webhook import Webhook
from fencepost.outbox.settings import OutboxSettings
from fencepost_orders._alpaca import AlpacaBroker
from fencepost_orders._oanda import OandaBroker
from fencepost_orders.broker import OutgoingOrder, Promise
from fencepost_orders.http_broker import HttpBroker
from fencepost_orders.http_rules import HttpBrokerConfig
from tests.security.hostile_server import REDIRECTS, HostileServer, hostile_server, reply
from tests.waiting_for import until

NOW = datetime(2030, 1, 1, tzinfo=UTC)
MESSAGE = Message(7, None, {"n": 1}, {}, 1, 3, NOW)
DOCUMENT = {"symbol": "X", "intent": "BUY", "qty": "1", "order_type": "MARKET", "time_in_force": "DAY"}
ORDER = OutgoingOrder("k", DOCUMENT, datetime(2031, 1, 1, tzinfo=UTC))
METADATA = "http://169.254.169.254/latest/meta-data/iam/security-credentials/"


@pytest.fixture
def canary() -> Iterator[HostileServer]:
    """What must not be asked: a service of this machine."""
    with hostile_server(reply("200 OK", b"{}")) as server:
        yield server


@pytest.mark.parametrize("target", ["canary", METADATA])
@pytest.mark.parametrize("status", REDIRECTS)
async def test_a_webhook_that_redirects_is_not_followed_and_not_delivered(
    canary: HostileServer, status: str, target: str
) -> None:
    location = canary.url if target == "canary" else target
    with hostile_server(reply(status, location=location)) as server:
        async with HttpClient(loopback="named") as client:
            settlement = await Webhook(client, f"{server.url}/hook").deliver(MESSAGE)
    assert settlement.outcome == "failed"
    assert (len(server.asked), canary.asked) == (1, [])


@pytest.mark.parametrize("status", REDIRECTS)
async def test_a_broker_that_redirects_is_not_followed_and_has_placed_nothing(
    canary: HostileServer, status: str
) -> None:
    with hostile_server(reply(status, location=canary.url)) as server:
        adapter = HttpBroker(HttpBrokerConfig(promise=Promise.FOREVER, base_url=server.url), environ={})
        try:
            answer = await adapter.send_order(ORDER)
        finally:
            await adapter.close()
    assert str(answer.status) == status[:3]
    assert (len(server.asked), canary.asked) == (1, [])


def names_lead_to(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> list[str]:
    """A name server that gives another address each time it is asked, and the last one from then on."""
    asked: list[str] = []
    real = socket.getaddrinfo

    def resolve(host: Any, port: Any, *arguments: Any, **options: Any) -> Any:
        if not str(host).endswith(".example"):
            return real(host, port, *arguments, **options)
        asked.append(host)
        return real(addresses[min(len(asked), len(addresses)) - 1], port, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    return asked


async def test_no_byte_is_sent_where_a_name_leads_to_this_machine(
    canary: HostileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    names_lead_to(monkeypatch, "127.0.0.1")
    async with HttpClient(loopback="named") as client:
        with pytest.raises(NotSent, match="leads to this machine"):
            await client.exchange(Request("POST", f"http://hooks.example:{canary.port}/", {}, b"secret"))
        reached = await client.exchange(Request("GET", f"http://localhost:{canary.port}/"))
    assert reached.status == 200
    assert len(canary.asked) == 1


async def test_a_name_that_changes_after_it_was_good_is_checked_where_it_is_connected(
    canary: HostileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first answer is closed, so that the next request resolves the name again."""
    other = socket.getaddrinfo("127.0.0.1", 0)[0][4][0]
    asked = names_lead_to(monkeypatch, str(other))
    judged: list[str] = []

    def refusal(host: str, peer: str, loopback: Loopback) -> str | None:
        judged.append(peer)
        return None if len(judged) == 1 else peer_refusal(host, peer, loopback)

    monkeypatch.setattr("fencepost.http_client.peer_refusal", refusal)
    async with HttpClient(loopback="named") as client:
        first = await client.exchange(Request("GET", f"http://hooks.example:{canary.port}/"))
        with pytest.raises(NotSent, match="leads to this machine"):
            await client.exchange(Request("GET", f"http://hooks.example:{canary.port}/"))
    assert (first.status, len(asked), len(canary.asked)) == (200, 2, 1)


async def test_the_brokers_of_the_product_are_bound_by_it(
    canary: HostileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    names_lead_to(monkeypatch, "127.0.0.1")
    place = f"http://broker.example:{canary.port}"
    described = HttpBroker(HttpBrokerConfig(promise=Promise.FOREVER, base_url=place), environ={})
    for adapter in (
        described,
        AlpacaBroker("key", "secret", base_url=place),
        OandaBroker("token", base_url=place),
    ):
        try:
            with pytest.raises(NotSent, match="leads to this machine"):
                await adapter.send_order(ORDER)
        finally:
            await adapter.close()
    assert canary.asked == []


async def test_the_relays_of_webhooks_are_bound_by_it(
    canary: HostileServer, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    names_lead_to(monkeypatch, "127.0.0.1")
    settings = OutboxSettings(webhooks=f"bills=http://hooks.example:{canary.port}/", retry_max=5)
    errors = Metrics().counter("errors", "Errors of the relay.", labels=("loop",))

    def last_error() -> str:
        with database.connect_admin() as admin:
            row = admin.execute(
                "select last_error from fencepost.outbox where last_error is not null"
            ).fetchone()
        return str(row[0]) if row else ""

    async with Fencepost(database.url) as fp:
        async with fp.transaction() as tx:
            await fp.outbox.put(tx, "bills", {"n": 1})
        async with webhook_relays.delivering(fp, settings, errors):
            await until("the delivery has failed", lambda: bool(last_error()))
    assert "leads to this machine" in last_error()
    assert canary.asked == []


@pytest.mark.parametrize(
    "peer",
    [
        "169.254.169.254",
        "::ffff:169.254.169.254",
        "fe80::a9fe:a9fe%eth0",
        "fd00:ec2::254",
        "100.100.100.200",
        "168.63.129.16",
        "0.0.0.0",  # noqa: S104 - An address to connect to, which leads to this machine.
        "::",
        "224.0.0.1",
    ],
)
def test_such_an_address_is_never_connected_to(peer: str) -> None:
    for host in ("hooks.example", peer.partition("%")[0]):
        assert peer_refusal(host, peer) is not None


@pytest.mark.parametrize(
    ("host", "peer", "allowed"),
    [
        ("hooks.example", "127.0.0.1", False),
        ("hooks.example", "127.9.9.9", False),
        ("hooks.example", "::1", False),
        ("hooks.example", "::ffff:127.0.0.1", False),
        ("localhost.example", "127.0.0.1", False),
        ("localhost", "127.0.0.1", True),
        ("hook.localhost", "::1", True),
        ("127.0.0.1", "127.0.0.1", True),
        ("::1", "::1", True),
        ("hooks.example", "10.0.0.7", True),
        ("hooks.example", "203.0.113.9", True),
    ],
)
def test_loopback_is_for_addresses_that_say_so(host: str, peer: str, allowed: bool) -> None:
    assert (peer_refusal(host, peer, loopback="named") is None) is allowed
    assert peer_refusal(host, peer) is None
