"""One account in two services: what one of them gives, takes or knows is nothing to the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any, LiteralString, TypeVar

import psycopg
import pytest

from fencepost.embedded import Database
from fencepost.errors import InvalidInput, NotFound
from fencepost.kernel.call import Call
from fencepost.kernel.drivers import run
from fencepost_judge._role import ACCOUNTS as JUDGE
from fencepost_judge._role import JudgeRole
from fencepost_server.accounts.calls import Accounts, audit_entries
from fencepost_server.accounts.role import Identity
from fencepost_server.console._role import ACCOUNTS as CONSOLE
from fencepost_server.console._role import Role
from tests.integration.judge.judge_env import CHEAP, open_office

T = TypeVar("T")
WINDOW = 900.0
PASSWORD = "correct horse battery"


@pytest.fixture
def both(database: Database) -> Database:
    """Ada is an admin of the console and a contestant; con is a contestant, vi a viewer of the console."""
    for call in (
        CONSOLE.set_user("ada", Role.ADMIN, "hash", "test", by_service=False),
        JUDGE.set_user("ada", JudgeRole.CONTESTANT, None, "test", by_service=True),
        JUDGE.set_user("con", JudgeRole.CONTESTANT, "hash", "test", by_service=True),
        CONSOLE.set_user("vi", Role.VIEWER, "hash", "test", by_service=True),
    ):
        ask(database, call)
    return database


def ask(database: Database, call: Call[T]) -> T:
    with database.connect() as connection:
        return run(connection, call)


def test_a_session_a_token_and_a_link_open_the_service_they_are_of(both: Database) -> None:
    ask(both, JUDGE.begin_session("s", "ada", lifetime_seconds=60, address="here", agent=""))
    ask(both, JUDGE.make_token("fpj_t", "ada", "t", None, lifetime_seconds=60, actor="ada"))
    ask(both, JUDGE.make_ticket("link", "ada", JudgeRole.CONTESTANT, lifetime_seconds=60))

    assert ask(both, CONSOLE.use_session("s", idle_seconds=60)) is None
    assert ask(both, CONSOLE.use_token("fpj_t")) is None
    assert ask(both, CONSOLE.use_ticket("link", "here")) is None
    assert ask(both, JUDGE.use_session("s", idle_seconds=60)) == Identity("ada", JudgeRole.CONTESTANT, "s")
    assert ask(both, JUDGE.use_token("fpj_t")) == Identity("ada", JudgeRole.CONTESTANT)
    assert ask(both, JUDGE.use_ticket("link", "here")) == Identity("ada", JudgeRole.CONTESTANT)


def test_without_a_role_in_a_service_an_account_is_unknown_there(both: Database) -> None:
    assert ask(both, CONSOLE.begin_login("con", "here", window_seconds=WINDOW)).password is None
    assert ask(both, CONSOLE.begin_login_known("con", "it", window_seconds=WINDOW)).password is None
    assert ask(both, JUDGE.begin_login("con", "here", window_seconds=WINDOW)).password == "hash"
    assert [user.name for user in ask(both, CONSOLE.users(None, 10))] == ["ada", "vi"]
    assert [user.name for user in ask(both, JUDGE.users(None, 10))] == ["ada", "con"]
    refused: list[Call[Any]] = [
        CONSOLE.begin_session("s", "con", lifetime_seconds=60, address="here", agent=""),
        CONSOLE.make_token("fpc_t", "con", "t", Role.ADMIN, lifetime_seconds=60, actor="con"),
        CONSOLE.set_password("con", "another", "vi", by_service=False),
        CONSOLE.disable_user("con", "vi"),
    ]
    for call in refused:
        with pytest.raises(NotFound, match="con"):
            ask(both, call)


def test_an_admin_of_one_service_sets_no_password_that_opens_another(both: Database) -> None:
    for call in (
        JUDGE.set_user("ada", JudgeRole.ADMIN, "known to the jury", "jo", by_service=True),
        JUDGE.set_password("ada", "known to the jury", "jo", by_service=True),
        CONSOLE.set_user("ada", Role.ADMIN, "known to vi", "vi", by_service=True),
    ):
        with pytest.raises(InvalidInput, match="ada has a role in the"):
            ask(both, call)
    assert ask(both, CONSOLE.begin_login("ada", "here", window_seconds=WINDOW)).password == "hash"
    # Nothing of the refused call was kept, also not the role.
    assert ask(both, JUDGE.users(None, 1))[0].role == "contestant"
    # An account that is disabled in the other service may be enabled there again.
    ask(both, CONSOLE.disable_user("ada", "vi"))
    with pytest.raises(InvalidInput):
        ask(both, JUDGE.set_password("ada", "known to the jury", "jo", by_service=True))
    # Its owner, and the operator at the command line, may.
    ask(both, JUDGE.set_password("ada", "new", "ada", by_service=False))
    assert ask(both, JUDGE.begin_login("ada", "here", window_seconds=WINDOW)).password == "new"


def test_a_new_password_ends_the_sessions_of_all_services_and_a_new_role_those_of_one(both: Database) -> None:
    def sessions() -> list[bool]:
        console = ask(both, CONSOLE.use_session("c", idle_seconds=60))
        judge = ask(both, JUDGE.use_session("j", idle_seconds=60))
        return [console is not None, judge is not None]

    for secret, accounts in (("c", CONSOLE), ("j", JUDGE)):
        ask(both, accounts.begin_session(secret, "ada", lifetime_seconds=60, address="here", agent=""))
    ask(both, JUDGE.set_user("ada", JudgeRole.JURY, None, "jo", by_service=True))
    assert sessions() == [True, False]
    ask(both, JUDGE.begin_session("j", "ada", lifetime_seconds=60, address="here", agent=""))
    ask(both, JUDGE.set_password("ada", "new", "ada", by_service=False))
    assert sessions() == [False, False]


def test_a_link_gives_no_role_to_an_account_of_another_service(both: Database) -> None:
    with pytest.raises(InvalidInput, match="con is an account without a role in the console"):
        ask(both, CONSOLE.make_ticket("link", "con", Role.ADMIN, lifetime_seconds=60))
    assert ask(both, CONSOLE.use_ticket("link", "here")) is None
    assert [user.name for user in ask(both, CONSOLE.users(None, 10))] == ["ada", "vi"]


def test_single_sign_on_becomes_no_account_of_another_service(both: Database) -> None:
    said = ask(both, CONSOLE.sign_on("con", Role.ADMIN, issuer="https://id", subject="1", address="here"))
    assert said.refused == "name_taken"
    assert [user.name for user in ask(both, CONSOLE.users(None, 10))] == ["ada", "vi"]


def test_disabled_in_one_service_is_not_in_the_other(both: Database) -> None:
    for secret, accounts in (("fpc_t", CONSOLE), ("fpj_t", JUDGE)):
        ask(both, accounts.make_token(secret, "ada", "t", None, lifetime_seconds=60, actor="ada"))
    ask(both, JUDGE.disable_user("ada", "jo"))
    assert ask(both, JUDGE.use_token("fpj_t")) is None
    assert ask(both, JUDGE.begin_login("ada", "here", window_seconds=WINDOW)).password is None
    assert ask(both, CONSOLE.use_token("fpc_t")) == Identity("ada", Role.ADMIN)
    ask(both, JUDGE.set_user("ada", JudgeRole.JURY, None, "jo", by_service=True))
    # Enabled again, without the old token.
    assert ask(both, JUDGE.use_token("fpj_t")) is None


def test_attempts_at_one_name_are_counted_over_all_services(both: Database) -> None:
    services: list[Accounts[Any]] = [CONSOLE, JUDGE] * 5
    begun = [
        ask(both, one.begin_login("ada", f"192.0.2.{n}", window_seconds=WINDOW)).wait_seconds
        for n, one in enumerate(services)
    ]
    assert begun == [None] * 10
    for accounts in (CONSOLE, JUDGE):
        wait = ask(both, accounts.begin_login("ada", "192.0.2.99", window_seconds=WINDOW)).wait_seconds
        assert wait is not None


def test_a_token_keeps_the_role_it_was_made_with_when_its_user_rises(both: Database) -> None:
    ask(both, JUDGE.make_token("fpj_t", "con", "t", None, lifetime_seconds=60, actor="con"))
    ask(both, JUDGE.set_user("con", JudgeRole.ADMIN, None, "jo", by_service=True))
    assert ask(both, JUDGE.use_token("fpj_t")) == Identity("con", JudgeRole.CONTESTANT)
    ask(both, JUDGE.make_token("fpj_a", "con", "t", None, lifetime_seconds=60, actor="con"))
    ask(both, JUDGE.set_user("con", JudgeRole.JURY, None, "jo", by_service=True))
    assert ask(both, JUDGE.use_token("fpj_a")) == Identity("con", JudgeRole.JURY)


def test_tokens_are_revoked_in_their_service_and_by_their_owner_or_its_admin(both: Database) -> None:
    token_id = ask(both, JUDGE.make_token("fpj_t", "con", "t", None, lifetime_seconds=60, actor="con"))
    for call in (CONSOLE.revoke_token(token_id, "vi"), JUDGE.revoke_token(token_id, "ada", owner="ada")):
        with pytest.raises(NotFound):
            ask(both, call)
    assert ask(both, JUDGE.use_token("fpj_t")) is not None
    ask(both, JUDGE.revoke_token(token_id, "jo"))
    assert ask(both, JUDGE.use_token("fpj_t")) is None


def test_the_audit_names_the_service_and_tells_no_secret(both: Database) -> None:
    ask(both, JUDGE.make_token("fpj_secret", "con", "laptop", None, lifetime_seconds=60, actor="jo"))
    ask(both, JUDGE.end_login("con", "192.0.2.1", right=False, rehashed=None))
    ask(both, JUDGE.disable_user("con", "jo"))
    entries = ask(both, audit_entries(actor=None, before=None, limit=3))
    assert [(one.service, one.actor, one.action, one.subject, one.outcome) for one in entries] == [
        ("judge", "jo", "user.disable", "con", "done"),
        ("judge", "con", "login", "con", "wrong password"),
        ("judge", "jo", "token.made", "con", "done"),
    ]
    assert "fpj_secret" not in str(entries)


WRONG: list[LiteralString] = [
    "insert into fencepost.account_role values ('judge', 'vi', 'viewer', now(), 'x')",
    "insert into fencepost.account_role values ('shop', 'vi', 'viewer', now(), 'x')",
    "update fencepost.account_role set role = 'emperor'",
    "update fencepost.account set name = 'a b'",
    "update fencepost.account set issuer = 'https://id'",
    "insert into fencepost.account_session values (sha256('x'), 'judge', 'vi', now(), now(), now(), '', '')",
    """insert into fencepost.account_token (digest, service, name, label, role, made_at, expires_at)
       values (sha256('x'), 'judge', 'con', 'x', 'operator', now(), now())""",
]


@pytest.mark.parametrize("statement", WRONG)
def test_the_tables_refuse_what_no_function_writes(both: Database, statement: LiteralString) -> None:
    with both.connect_admin() as admin, pytest.raises(psycopg.errors.IntegrityError):
        admin.execute(statement)


@pytest.mark.parametrize(
    "call",
    [
        JUDGE.begin_session("s", "con", lifetime_seconds=60, address="here", agent=""),
        JUDGE.make_token("fpj_t", "con", "t", None, lifetime_seconds=60, actor="con"),
        JUDGE.set_password("con", "new", "con", by_service=True),
    ],
    ids=["session", "token", "password"],
)
def test_what_begins_while_the_account_is_disabled_waits_and_is_refused(
    both: Database, call: Call[Any]
) -> None:
    with psycopg.connect(both.url) as disabling, psycopg.connect(both.url) as entering:
        run(disabling, JUDGE.disable_user("con", "jo"))
        entering.execute("set local lock_timeout = '200ms'")
        with pytest.raises(Exception, match="lock timeout"):
            run(entering, call)
        entering.rollback()
        disabling.commit()
        with pytest.raises(NotFound):
            run(entering, call)


async def test_a_token_of_the_judge_changes_no_password_that_opens_the_console(
    database: Database, tmp_path: Path
) -> None:
    async with open_office(database, tmp_path) as office:
        for name in ("ada", "con"):
            await office.add(name, JudgeRole.CONTESTANT)
        hashed = CHEAP.hash(PASSWORD)
        await office.fp.run(CONSOLE.set_user("ada", Role.ADMIN, hashed, "test", by_service=False))

        async def change(name: str, old: str, new: str) -> int:
            async with office.browser(name) as browser:
                answer = await browser.send("/judge/account/password", old=old, password=new)
                return answer.status_code

        async def opens(accounts: Any, name: str, password: str) -> bool:
            attempt = await office.fp.run(accounts.begin_login_known(name, password, window_seconds=60))
            return CHEAP.verify(attempt.password, password)

        assert await change("ada", office.tokens["ada"], "known to a thief") == 400
        assert await opens(CONSOLE, "ada", PASSWORD)
        assert await change("con", office.tokens["con"], "chosen by con") == 303
        assert await opens(JUDGE, "con", "chosen by con")
        assert await change("ada", PASSWORD, "chosen by ada") == 303
        assert await opens(CONSOLE, "ada", "chosen by ada")
