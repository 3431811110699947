"""Which requests are admitted: a table of requests, and the answer of each."""

import pytest

from fencepost_server.web._security_middleware import SecurityRules

OPEN = SecurityRules(token=None, body_max_bytes=2048)
CLOSED = SecurityRules(token="0123456789abcdef", body_max_bytes=2048)
HERE = {"host": "127.0.0.1:8080"}


def judged(rules: SecurityRules, method: str = "POST", path: str = "/orders", **headers: str) -> int:
    sent = HERE | {name.replace("_", "-"): value for name, value in headers.items()}
    refusal = rules.refusal(method, path, sent)
    return 200 if refusal is None else refusal.status_code


@pytest.mark.parametrize("host", ["localhost:1", "127.0.0.1", "[::1]:8080"])
def test_without_a_token_a_program_of_this_machine_comes_in(host: str) -> None:
    assert judged(OPEN, host=host) == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8080", "", "localhost.evil.example"])
def test_a_foreign_name_that_points_here_does_not(host: str) -> None:
    assert judged(OPEN, "GET", host=host) == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_page_of_another_site_changes_nothing(site: str) -> None:
    assert judged(OPEN, sec_fetch_site=site) == 403
    assert judged(CLOSED, sec_fetch_site=site, authorization="Bearer 0123456789abcdef") == 403
    assert judged(OPEN, "GET", sec_fetch_site=site) == 200


def test_an_old_browser_is_told_by_its_origin() -> None:
    assert judged(OPEN, origin="https://evil.example") == 403
    assert judged(OPEN, origin="http://127.0.0.1:8080") == 200
    assert judged(OPEN, origin="null") == 403


def test_a_page_of_our_own_may() -> None:
    assert judged(OPEN, sec_fetch_site="same-origin") == 200
    assert judged(OPEN, sec_fetch_site="none") == 200


@pytest.mark.parametrize("given", ["", "Bearer", "Bearer wrong", "Basic 0123456789abcdef", "Bearer \u00e9"])
def test_without_the_right_token_no_caller_comes_in(given: str) -> None:
    assert judged(CLOSED, "GET", authorization=given) == 401


def test_with_it_every_caller_does_under_any_name() -> None:
    assert judged(CLOSED, authorization="bearer 0123456789abcdef", host="shop.example") == 200


def test_health_is_open() -> None:
    assert judged(CLOSED, "GET", "/healthz") == judged(CLOSED, "GET", "/readyz") == 200
    assert judged(CLOSED, "GET", "/metrics") == 401


def test_a_body_that_is_announced_too_large_is_not_read() -> None:
    assert judged(OPEN, content_length="2048") == 200
    assert judged(OPEN, content_length="2049") == 413


@pytest.mark.parametrize("wrong", ["[", "a]b", "[::1"])
def test_an_address_that_is_none_is_refused_and_no_failure_of_ours(wrong: str) -> None:
    for headers in ({"host": wrong}, {"host": "localhost", "origin": f"http://{wrong}"}):
        refusal = OPEN.refusal("POST", "/orders", headers)
        assert refusal is not None
        assert refusal.status_code == 403
