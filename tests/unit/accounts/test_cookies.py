"""Cookies and forms that cannot be made up."""

import time

import pytest
from fastapi import Request, Response

from fencepost_server.accounts._cookies import NOTICE_SECONDS, Cookies
from fencepost_server.accounts.secret import digest_of, new_secret

COOKIES = Cookies(b"k" * 32, "console")
TEXTS = ["a.b", "", "ü 中\n\0", '{"a": [1]}', "x" * 3000]


def altered(cookie: str, place: int) -> str:
    return cookie[:place] + ("A" if cookie[place] != "A" else "B") + cookie[place + 1 :]


@pytest.mark.parametrize("text", TEXTS)
def test_what_was_signed_is_opened(text: str) -> None:
    assert COOKIES.opened("session", COOKIES.signed("session", text), 60) == text


def test_nothing_else_is_opened() -> None:
    cookie = COOKIES.signed("session", "a.b")
    # The last character of each part has bits that mean nothing.
    places = [place for place in range(len(cookie)) if cookie[place + 1 : place + 2] not in {"", "."}]
    changed = [altered(cookie, place) for place in places if cookie[place] != "."]
    for wrong in [*changed, "a.b", "", ".", "..", "\ud800", cookie[:-5], f"{cookie}.{cookie}"]:
        assert COOKIES.opened("session", wrong, 60) is None, wrong


def test_a_cookie_is_of_one_name_one_service_and_one_key() -> None:
    cookie = COOKIES.signed("notice", "a")
    assert COOKIES.opened("session", cookie, 60) is None
    assert Cookies(b"k" * 32, "judge").opened("notice", cookie, 60) is None
    assert Cookies(b"x" * 32, "console").opened("notice", cookie, 60) is None


def test_a_cookie_is_accepted_for_its_time_whatever_a_browser_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    cookie = COOKIES.signed("notice", "a")
    signed_at = time.time()
    monkeypatch.setattr("time.time", lambda: signed_at + NOTICE_SECONDS - 2)
    assert COOKIES.opened("notice", cookie, NOTICE_SECONDS) == "a"
    monkeypatch.setattr("time.time", lambda: signed_at + NOTICE_SECONDS + 2)
    assert COOKIES.opened("notice", cookie, NOTICE_SECONDS) is None


def test_a_forms_token_belongs_to_one_session_and_one_service() -> None:
    token = COOKIES.form_token("mine")
    assert COOKIES.is_form_token(token, "mine")
    assert not COOKIES.is_form_token(token, "yours")
    assert not Cookies(b"k" * 32, "judge").is_form_token(token, "mine")
    for wrong in ("", "ü", "\ud800", "A" * 43, token[:-2]):
        assert not COOKIES.is_form_token(wrong, "mine")


def test_secrets_differ_and_their_digests_tell_nothing() -> None:
    one, other = new_secret(), new_secret()
    assert one != other
    assert digest_of(one) != digest_of(other)
    assert one.encode() not in digest_of(one)


@pytest.mark.parametrize(("scheme", "secure"), [("http", False), ("https", True)])
def test_a_cookie_is_for_the_server_alone(scheme: str, secure: bool) -> None:
    request = Request({"type": "http", "scheme": scheme, "path": "/", "headers": [(b"host", b"a.example")]})
    response = Response()
    COOKIES.keep(request, response, "session", "secret", 60)
    said = response.headers["set-cookie"]
    assert said.startswith("console_session=")
    assert "HttpOnly" in said
    assert "SameSite=lax" in said
    assert "Max-Age=60" in said
    assert ("Secure" in said) is secure
