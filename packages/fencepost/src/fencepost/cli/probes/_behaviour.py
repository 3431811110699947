"""Tries on a PostgreSQL what the kernel relies on: locks, snapshots, settings, notifications.

A server that speaks the protocol of PostgreSQL is not always one. Each try is made on a table in a schema of
its own, on two connections, and the schema is dropped at the end.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, LiteralString

import psycopg
from psycopg import sql
from psycopg.errors import LockNotAvailable

from fencepost.cli.database_reader import Reader, first_line, reading
from fencepost.cli.findings import Finding, FindingState
from fencepost.cli.probes._postgres import judge_version
from fencepost.errors import FencepostError
from fencepost.redaction import redact_url

AREA = "server behaviour"
ADVISORY_KEY = 7_301_885_001
WAIT_SECONDS_MAX = 3.0
FENCE: LiteralString = "select 1 from lease where resource = 'a' for key share"
TABLES: tuple[LiteralString, ...] = (
    "create table lease (resource text primary key, token bigint, note text, unique (resource, token))",
    "insert into lease values ('a', 1, ''), ('b', 1, '')",
    "create table waiting (id bigint primary key)",
    "create table running (id bigint primary key)",
    "insert into waiting values (1)",
)


class Pair:
    """Two connections, each with the scratch schema on its search path."""

    def __init__(self, first: Reader, second: Reader) -> None:
        self.first = first
        self.second = second

    def value(self, connection: Reader, query: LiteralString, *parameters: object) -> Any:
        row = connection.execute(query, parameters).fetchone()
        return row[0] if row else None

    def is_blocked(self, statement: LiteralString) -> bool:
        """Whether the second connection has to wait for the first one."""
        self.second.execute("set local lock_timeout = '500ms'")
        try:
            self.second.execute(statement)
        except LockNotAvailable:
            return True
        return False

    def roll_back(self) -> None:
        self.first.rollback()
        self.second.rollback()


@dataclass(frozen=True, slots=True)
class Try:
    """`relied_on_for` says what breaks without it."""

    name: str
    relied_on_for: str
    passes: Callable[[Pair], bool]
    required: bool = True


def _renewal_passes(pair: Pair) -> bool:
    pair.first.execute(FENCE)
    return not pair.is_blocked("update lease set note = 'renewed' where resource = 'a'")


def _takeover_waits(pair: Pair) -> bool:
    pair.first.execute(FENCE)
    return pair.is_blocked("update lease set token = token + 1 where resource = 'a'")


def _skips_locked(pair: Pair) -> bool:
    pair.first.execute("select 1 from lease where resource = 'a' for update")
    pair.second.execute("set local lock_timeout = '500ms'")
    rows = pair.second.execute(
        "select resource from lease order by resource for update skip locked"
    ).fetchall()
    return rows == [("b",)]


def _advisory_locks_end_with_the_transaction(pair: Pair) -> bool:
    lock: LiteralString = "select pg_try_advisory_xact_lock(%s::bigint)"
    taken = pair.value(pair.first, lock, ADVISORY_KEY)
    refused = pair.value(pair.second, lock, ADVISORY_KEY)
    pair.first.rollback()
    return bool(taken and not refused and pair.value(pair.second, lock, ADVISORY_KEY))


def _statements_see_what_was_committed(pair: Pair) -> bool:
    note: LiteralString = "select note from lease where resource = 'b'"
    before = pair.value(pair.second, note)
    pair.first.execute("update lease set note = note || 'x' where resource = 'b'")
    pair.first.commit()
    return bool(pair.value(pair.second, note) == f"{before}x")


def _moves_rows(pair: Pair) -> bool:
    pair.first.execute(
        "with gone as (delete from waiting where id = 1 returning id) insert into running select id from gone"
    )
    return bool(pair.value(pair.first, "select count(*) from running") == 1)


def _the_clock_moves(pair: Pair) -> bool:
    before = pair.value(pair.first, "select clock_timestamp()")
    return bool(pair.value(pair.first, "select clock_timestamp() > %s", before))


def _settings_end_with_the_transaction(pair: Pair) -> bool:
    name = "idle_in_transaction_session_timeout"
    read: LiteralString = "select current_setting(%s)"
    before = pair.value(pair.first, read, name)
    pair.value(pair.first, "select set_config(%s, '54321ms', true)", name)
    within = pair.value(pair.first, read, name)
    pair.first.rollback()
    return bool(within == "54321ms" and pair.value(pair.first, read, name) == before)


def _blockers_are_known(pair: Pair) -> bool:
    """The second connection waits on a thread, while the first one asks who blocks it."""
    waiter, holder = (pair.value(each, "select pg_backend_pid()") for each in (pair.second, pair.first))
    pair.first.execute("select 1 from lease where resource = 'a' for update")
    waiting = threading.Thread(
        target=pair.is_blocked, args=("update lease set note = '' where resource = 'a'",)
    )
    waiting.start()
    blockers: list[int] = []
    until = time.monotonic() + WAIT_SECONDS_MAX
    while waiting.is_alive() and holder not in blockers and time.monotonic() < until:
        blockers = pair.value(pair.first, "select pg_blocking_pids(%s)", waiter)
    waiting.join()
    return holder in blockers


def _notifies(pair: Pair) -> bool:
    pair.second.execute("listen fencepost_probe")
    pair.second.commit()
    pair.first.execute("notify fencepost_probe")
    pair.first.commit()
    return any(pair.second.notifies(timeout=WAIT_SECONDS_MAX, stop_after=1))


TRIES = (
    Try("renewal beside a fence", "a heartbeat that passes while its holder commits", _renewal_passes),
    Try("takeover behind a fence", "a takeover that waits for the fenced transaction", _takeover_waits),
    Try("SKIP LOCKED", "claims that do not wait for each other", _skips_locked),
    Try("advisory locks", "idempotency keys, through a pooler too", _advisory_locks_end_with_the_transaction),
    Try("READ COMMITTED", "a refusal that explains what it saw", _statements_see_what_was_committed),
    Try("moves in one statement", "a job that is in one table only", _moves_rows),
    Try("clock_timestamp()", "leases that expire inside a transaction", _the_clock_moves),
    Try("local settings", "a bound for paused holders", _settings_end_with_the_transaction),
    Try("pg_blocking_pids()", "the eviction of a paused holder", _blockers_are_known),
    Try("LISTEN", "prompt starts; without it workers poll", _notifies, required=False),
)


def probe_behaviour(url: str, *, seconds: float = 5.0, tries: tuple[Try, ...] = TRIES) -> list[Finding]:
    """What the server does in each try. The login must be able to create a schema, which is dropped."""
    try:
        with _scratch(url, seconds) as pair:
            version = judge_version(pair.first.info.server_version, redact_url(url))
            return [version, *(_finding(each, pair) for each in tries)]
    except (FencepostError, psycopg.Error) as error:
        remedy = "Name a server, and a login that may create a schema in it."
        return [Finding(AREA, "connection", FindingState.LACKING, first_line(error), remedy, required=True)]


def _finding(each: Try, pair: Pair) -> Finding:
    try:
        passed, detail = each.passes(pair), f"for {each.relied_on_for}"
    except psycopg.Error as error:
        passed, detail = False, f"{first_line(error)}; it is needed for {each.relied_on_for}"
    finally:
        pair.roll_back()
    if passed:
        return Finding(AREA, each.name, FindingState.OK, detail, required=each.required)
    if not each.required:
        remedy = "Nothing is lost without it: JOBS_POLL_SEC says how long a start may take."
        return Finding(AREA, each.name, FindingState.DEGRADED, detail, remedy)
    remedy = "Fencepost cannot keep its promises on this server. Use another one."
    return Finding(AREA, each.name, FindingState.LACKING, detail, remedy, required=True)


@contextmanager
def _scratch(url: str, seconds: float) -> Generator[Pair]:
    schema = sql.Identifier(f"fencepost_probe_{uuid.uuid4().hex[:12]}")
    with ExitStack() as stack:
        owner = stack.enter_context(reading(url, seconds=seconds))
        owner.execute(sql.SQL("create schema {}").format(schema))
        stack.callback(owner.execute, sql.SQL("drop schema {} cascade").format(schema))
        first, second = (stack.enter_context(reading(url, seconds=seconds)) for _ in range(2))
        for connection in (first, second):
            connection.execute(sql.SQL("set search_path = {}, pg_catalog").format(schema))
            connection.execute("set default_transaction_isolation = 'read committed'")
        for statement in TABLES:
            first.execute(statement)
        for connection in (first, second):
            connection.autocommit = False
            # The drop of the schema waits for no try that has failed.
            stack.callback(connection.rollback)
        yield Pair(first, second)
