"""Tokens of users of the console, and of programs of one service."""

import psycopg

from fencepost.embedded import Database
from fencepost.kernel.drivers import run
from fencepost_server.accounts.programs import ProgramRole, programs_of
from fencepost_server.accounts.secret import new_secret
from fencepost_server.console._role import ACCOUNTS, Role


def user_token(database: Database, role: Role) -> str:
    token = ACCOUNTS.token_prefix + new_secret()
    with psycopg.connect(database.url, autocommit=True) as connection:
        run(connection, ACCOUNTS.set_user(role.word, role, None, "test", by_service=False))
        call = ACCOUNTS.make_token(token, role.word, "test", role, lifetime_seconds=600, actor="test")
        run(connection, call)
    return token


def program_token(database: Database, service: str, *, name: str = "checkout") -> str:
    programs = programs_of(service)
    token = programs.token_prefix + new_secret()
    with psycopg.connect(database.url, autocommit=True) as connection:
        run(connection, programs.set_user(name, ProgramRole.PROGRAM, None, "test", by_service=False))
        run(connection, programs.make_token(token, name, "test", None, lifetime_seconds=600, actor="test"))
    return token
