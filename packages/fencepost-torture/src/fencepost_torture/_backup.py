"""Backs up the database of one system and restores it: only that database goes back in time.

Processes keep running meanwhile: they hold tokens, attempts and ids of the time that is lost, and reconnect
as soon as they can. Before that, `fencepost recover` invalidates all of them.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, LiteralString

import psycopg
from psycopg import sql

from fencepost.embedded import Database
from fencepost.kernel._recover import recover
from fencepost_torture._system_environment import SystemEnvironment

ACTOR = "torture"


def back_up(env: SystemEnvironment) -> None:
    """Copy the database, as a nightly job does; here every process waits for it."""
    copy = _copy_of(env)
    with _shut(env):
        copy.drop()
        copy.create(template=env.database.name)


def restore(env: SystemEnvironment) -> bool:
    """Replace the database with the backup and recover it; False when there is no backup."""
    copy = _copy_of(env)
    if not copy.exists():
        return False
    with _cut_off(env):
        env.database.drop()
        env.database.create(template=copy.name)
        copy.drop()
        recover(env.admin_url, ACTOR)
        env.restored.append(time.monotonic())
    return True


def _copy_of(env: SystemEnvironment) -> Database:
    return Database(env.database.server, f"{env.database.name}_backup")


@contextmanager
def _cut_off(env: SystemEnvironment) -> Generator[None]:
    """No connection through the proxies while the block runs."""
    env.postgres_wire.refuse()
    env.postgres_wire.cut()
    try:
        yield
    finally:
        env.postgres_wire.heal()


@contextmanager
def _shut(env: SystemEnvironment) -> Generator[None]:
    """No connection to the database at all: it can only be copied while nothing is connected to it."""
    name = env.database.name
    with _cut_off(env), psycopg.connect(env.database.server.url(), autocommit=True) as admin:
        _allow(admin, name, "false")
        try:
            admin.execute(
                "select pg_terminate_backend(pid, 10000) from pg_stat_activity where datname = %s", (name,)
            )
            yield
        finally:
            _allow(admin, name, "true")


def _allow(admin: psycopg.Connection[Any], name: str, whether: LiteralString) -> None:
    statement = sql.SQL("alter database {} with allow_connections " + whether)
    admin.execute(statement.format(sql.Identifier(name)))
