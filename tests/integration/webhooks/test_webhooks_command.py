"""`fencepost webhooks`, as a person and as a script call it."""

from collections.abc import Callable

import pytest

from fencepost.cli.exit_codes import ExitCode
from tests.integration.cli.conftest import Answer

Fencepost = Callable[..., Answer]


@pytest.fixture
def fencepost(subcommand: Callable[[str], Fencepost]) -> Fencepost:
    """`fencepost("list")` is `fencepost webhooks list`."""
    return subcommand("webhooks")


def test_a_secret_is_printed_once_and_nothing_else_with_it(fencepost: Fencepost) -> None:
    added = fencepost("add", "audit", "https://audit.example/in?key=k", "--topic", "orders")
    assert added.code == ExitCode.OK
    secret = added.out.strip()
    assert secret.startswith("whsec_")
    rotated = fencepost("rotate", "audit", "--overlap", "3600", "--json").json
    assert rotated["secret"] != secret
    listed = fencepost("list")
    assert "https://audit.example" in listed.out
    assert "topics orders" in listed.out
    assert "2 secrets until" in listed.out
    assert not any(word in listed.out for word in ("key=k", secret, rotated["secret"]))
    (one,) = fencepost("list", "--json").json
    assert (one["host"], one["topics"], one["secrets"], one["dead"]) == (
        "https://audit.example",
        ["orders"],
        2,
        0,
    )


def test_a_webhook_is_changed_paused_resumed_and_removed(fencepost: Fencepost) -> None:
    fencepost("add", "audit", "https://audit.example/in")
    assert fencepost("change", "audit", "--url", "https://b.example", "--topic", "orders").code == ExitCode.OK
    assert fencepost("pause", "audit").out == "webhook audit: paused\n"
    assert "paused" in fencepost("list").out
    assert fencepost("resume", "audit").out == "webhook audit: resumed\n"
    assert "https://b.example  topics orders" in fencepost("list").out
    assert fencepost("dead", "audit").out == "No dead messages.\n"
    assert fencepost("remove", "audit").out == "webhook audit: removed, 0 dead\n"
    assert fencepost("list").out == "No webhooks.\n"


def test_a_channel_without_a_url_has_no_secret(fencepost: Fencepost) -> None:
    assert fencepost("add", "books", "--topic", "orders").out == "webhook books: added\n"
    assert "(taken by a program)" in fencepost("list").out
    assert fencepost("change", "books", "--url", "https://b.example").out.startswith("whsec_")


@pytest.mark.parametrize(
    "arguments", [("pause", "missing"), ("rotate", "missing"), ("remove", "missing"), ("redeliver", "999")]
)
def test_what_is_not_there_ends_with_4(fencepost: Fencepost, arguments: tuple[str, ...]) -> None:
    assert fencepost(*arguments).code == ExitCode.NOT_FOUND


@pytest.mark.parametrize("url", ["http://127.0.0.1/in", "http://169.254.169.254/", "ftp://a"])
def test_an_address_that_must_not_be_reached_is_refused(fencepost: Fencepost, url: str) -> None:
    refused = fencepost("add", "audit", url)
    assert refused.code != ExitCode.OK
    assert "url" in refused.err
    assert fencepost("list").out == "No webhooks.\n"


def test_this_machine_where_the_setting_allows_it(
    fencepost: Fencepost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTBOX_WEBHOOK_LOOPBACK", "on")
    assert fencepost("add", "audit", "http://127.0.0.1:1/in").code == ExitCode.OK
    taken = fencepost("add", "audit", "http://127.0.0.1:1/in")
    assert taken.code == ExitCode.PROBLEM
    assert "There is a webhook audit already" in taken.err
