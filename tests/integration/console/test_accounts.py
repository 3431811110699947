"""An unknown user gets no session and no token; and what is no name belongs to no user."""

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from fencepost.embedded import Database
from fencepost.errors import InvalidInput, NotFound
from fencepost.kernel.call import Call
from fencepost.kernel.drivers import run
from fencepost_server.console._role import ACCOUNTS, Role

T = TypeVar("T")


def session(name: str) -> Call[None]:
    return ACCOUNTS.begin_session("secret", name, lifetime_seconds=60, address="127.0.0.1", agent="test")


def token(name: str) -> Call[int]:
    return ACCOUNTS.make_token("secret", name, "test", Role.VIEWER, lifetime_seconds=60, actor="test")


def call(database: Database, asked: Call[T]) -> T:
    with database.connect() as connection:
        return run(connection, asked)


@pytest.mark.parametrize("admit", [session, token])
def test_a_name_without_an_active_user_is_not_admitted(
    database: Database, admit: Callable[[str], Call[Any]]
) -> None:
    call(database, ACCOUNTS.set_user("ada", Role.ADMIN, "hash", "test", by_service=False))
    call(database, ACCOUNTS.disable_user("ada", "test"))

    for name in ("ada", "nobody"):
        with pytest.raises(NotFound, match=name):
            call(database, admit(name))

    call(database, ACCOUNTS.set_user("bob", Role.ADMIN, "hash", "test", by_service=False))
    call(database, admit("bob"))


@pytest.mark.parametrize("name", ["-x", "a b", "a/b", "ä", "<b>", "a\nb"])
def test_a_name_that_a_log_or_a_page_could_be_misled_by_is_refused(database: Database, name: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        call(database, ACCOUNTS.set_user(name, Role.VIEWER, "hash", "test", by_service=False))

    assert refused.value.field == "name"
    assert call(database, ACCOUNTS.users(None, 10)) == []
