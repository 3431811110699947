"""The client that a proxy names, and which proxy is believed."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.errors import SettingsError
from fencepost_server.web._networks import Networks
from fencepost_server.web._proxies import Proxied, client_of, is_forwarded, is_local
from fencepost_server.web._security_middleware import Accounts, SecurityRules
from fencepost_server.web.settings import WebSettings

NAMED = Networks.read("10.0.0.7, 10.1.0.0/16, ::1")
TOKEN = "0123456789abcdef"
HERE = {"host": "127.0.0.1:8080"}


@pytest.mark.parametrize(
    ("peer", "lines", "client"),
    [
        ("10.0.0.7", ["203.0.113.9"], "203.0.113.9"),
        ("10.0.0.7", [], "10.0.0.7"),
        # A client that invents hops stands behind the one that the proxy has written.
        ("10.0.0.7", ["1.2.3.4, 203.0.113.9"], "203.0.113.9"),
        ("10.0.0.7", ["1.2.3.4", "203.0.113.9"], "203.0.113.9"),
        # Two proxies that are named, one behind the other.
        ("10.0.0.7", ["1.2.3.4, 203.0.113.9, 10.1.2.3"], "203.0.113.9"),
        ("10.0.0.7", ["203.0.113.9, 192.0.2.1"], "192.0.2.1"),
        ("10.0.0.7", ["203.0.113.9, nonsense"], "10.0.0.7"),
        ("10.0.0.7", ["203.0.113.9:4711"], "203.0.113.9"),
        ("10.0.0.7", ["[2001:db8::1]:4711"], "2001:db8::1"),
        ("::1", ["2001:db8::1"], "2001:db8::1"),
        ("::ffff:10.0.0.7", ["203.0.113.9"], "203.0.113.9"),
        ("192.0.2.1", ["203.0.113.9"], "192.0.2.1"),
    ],
)
def test_the_client_is_the_nearest_that_is_no_proxy(peer: str, lines: list[str], client: str) -> None:
    assert client_of(peer, lines, NAMED) == client


async def seen(peer: str, *headers: tuple[str, str]) -> dict[str, Any]:
    scopes: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scopes.append(scope)

    sent = [(name.encode(), value.encode()) for name, value in headers]
    scope = {"type": "http", "client": (peer, 4711), "scheme": "http", "headers": sent}
    await Proxied(app, NAMED)(scope, None, None)  # type: ignore[arg-type]
    (found,) = scopes
    return dict(found)


async def test_a_named_proxy_is_believed_and_its_headers_go() -> None:
    through = await seen(
        "10.0.0.7",
        ("host", "shop.example"),
        ("x-forwarded-for", "203.0.113.9"),
        ("x-forwarded-proto", "https"),
        ("forwarded", "for=1.2.3.4"),
        ("x-real-ip", "1.2.3.4"),
        ("x-forwarded-host", "evil.example"),
    )
    assert (through["client"][0], through["scheme"]) == ("203.0.113.9", "https")
    assert through["headers"] == [(b"host", b"shop.example")]


async def test_two_words_about_the_scheme_are_none() -> None:
    """The client wrote one of them."""
    through = await seen("10.0.0.7", ("x-forwarded-proto", "https"), ("x-forwarded-proto", "http"))
    assert through["scheme"] == "http"


async def test_no_other_caller_is_believed() -> None:
    through = await seen("127.0.0.1", ("x-forwarded-for", "203.0.113.9"), ("x-forwarded-proto", "https"))
    assert (through["client"], through["scheme"]) == (("127.0.0.1", 4711), "http")
    assert len(through["headers"]) == 2


@pytest.mark.parametrize(
    "name", ["forwarded", "x-forwarded-for", "x-forwarded-proto", "x-forwarded-anything", "x-real-ip", "via"]
)
def test_without_a_token_what_was_forwarded_is_not_local(name: str) -> None:
    headers = HERE | {name: "203.0.113.9"}
    assert not is_local(headers, "1.1")
    rules = SecurityRules(token=None, body_max_bytes=2048)
    refusal = rules.refusal("GET", "/orders", headers)
    assert refusal is not None
    assert refusal.status_code == 403
    assert b"HTTP_PROXIES" in bytes(refusal.body)
    assert not rules.trusts(headers)
    # Health has no secret; it is told like a stranger.
    assert rules.refusal("GET", "/readyz", headers) is None


def test_nginx_without_settings_is_told_by_its_version() -> None:
    rules = SecurityRules(token=None, body_max_bytes=2048)
    assert rules.refusal("GET", "/orders", HERE, "1.0") is not None
    assert rules.refusal("GET", "/orders", HERE, "1.1") is None
    assert not rules.trusts(HERE, "1.0")
    assert SecurityRules(token=TOKEN, body_max_bytes=2048).trusts({"authorization": f"Bearer {TOKEN}"}, "1.0")


def test_a_proxy_in_front_of_a_browser_is_no_forwarding() -> None:
    assert not is_forwarded({"via": "1.1 office"})


async def test_accounts_are_asked_about_once_a_second() -> None:
    now, answers, asked = [100.0], [False, True], list[bool]()

    async def question() -> bool:
        asked.append(True)
        return answers.pop(0)

    accounts = Accounts([question], now=lambda: now[0])
    assert [await accounts.exist() for _ in range(3)] == [False] * 3
    now[0] += 1
    assert await accounts.exist()
    assert len(asked) == 2


@pytest.mark.parametrize("named", ["127.0.0.1", "10.0.0.0/8, ::1"])
def test_proxies_need_a_token(named: str) -> None:
    with pytest.raises(SettingsError, match=r"HTTP_PROXIES is .* there is no HTTP_TOKEN"):
        WebSettings.load({"HTTP_PROXIES": named})
    assert WebSettings.load({"HTTP_PROXIES": named, "HTTP_TOKEN": TOKEN}).proxy_networks


@pytest.mark.parametrize("wrong", ["proxy.example", "10.0.0.0/99", "*", "10.0.0.7/8"])
def test_what_is_no_address_names_no_proxy(wrong: str) -> None:
    with pytest.raises(SettingsError, match="HTTP_PROXIES"):
        WebSettings.load({"HTTP_PROXIES": wrong, "HTTP_TOKEN": TOKEN})
