"""What one call costs: its plans, what it read from each table and index, and the buffers it touched."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.errors import Diagnostic

from fencepost.embedded import Database
from tests.integration.plans.hot_call import HotCall
from tests.integration.plans.plan_tree import Scan, has_scan, read_plan, scans, without_constants

Connection = psycopg.Connection[tuple[Any, ...]]

# The counters of the transaction that is open: by oid, a table's rows read by scans and an index's entries.
COUNTERS = """
    select c.oid::bigint, pg_stat_get_xact_numscans(c.oid), pg_stat_get_xact_tuples_returned(c.oid)
    from pg_class c where c.relnamespace = 'fencepost'::regnamespace and c.relkind in ('r', 'i')"""

RELATIONS = """
    select c.oid::bigint, c.relname, c.relkind = 'i' from pg_class c
    where c.relnamespace = 'fencepost'::regnamespace and c.relkind in ('r', 'i', 'p')"""

# Whether there is any open batch is what this index is for; the first entry answers it.
ASKED_WHOLE = frozenset({"job_batch_open"})


@dataclass(frozen=True)
class Observation:
    """One call, seen from inside."""

    scans: tuple[str, ...]
    """Accesses that read a whole table or a whole index, planned or done, in words."""
    entries: int
    """Index entries that were read."""
    buffers: int
    """Shared buffers that were hit or read."""


class Observer:
    """A connection that watches its own calls and undoes them."""

    def __init__(self, connection: Connection, big_tables: frozenset[str]) -> None:
        self._connection = connection
        rows = connection.execute(RELATIONS).fetchall()
        self._names: dict[int, str] = {oid: name for oid, name, _ in rows}
        self._indexes = {oid for oid, _, is_index in rows if is_index}
        self._big = {oid for oid, name in self._names.items() if name in big_tables}

    def observe(self, call: HotCall, size: int) -> Observation:
        """The plans of a first call, then the costs of a second: the first one also fills the caches."""
        planned = {self._in_words(scan) for scan in self._plans(call, size) if self._is_too_much(scan)}
        return self.measure(call, size, sorted(planned))

    def measure(self, call: HotCall, size: int, planned: Sequence[str]) -> Observation:
        """What the call does with the plans that are there."""
        with self._undone(call, size):
            before = self._counters()
            buffers = self._explain(call, size)
            after = self._counters()
        entries = sum(after[oid][1] - before[oid][1] for oid in self._indexes)
        scanned = [
            f"{after[oid][1] - before[oid][1]} rows of {self._names[oid]} were scanned"
            for oid in sorted(self._big)
            if after[oid][0] > before[oid][0]
        ]
        return Observation((*planned, *scanned), entries, buffers)

    def repeat(self, call: HotCall, size: int, times: int) -> None:
        """Call until the server has settled on a plan that it keeps."""
        for _ in range(times):
            with self._undone(call, size):
                self._connection.execute(call.sql, call.arguments(size))

    def _plans(self, call: HotCall, size: int) -> list[Scan]:
        printed: set[str] = set()

        def collect(note: Diagnostic) -> None:
            if note.message_primary == "plan:":
                printed.add(without_constants(note.message_detail or ""))

        with self._undone(call, size):
            self._connection.add_notice_handler(collect)
            self._connection.execute("set local client_min_messages = log")
            self._connection.execute("set local debug_print_plan = on")
            self._connection.execute(call.sql, call.arguments(size))
        self._connection.remove_notice_handler(collect)
        assert printed, "the server printed no plan"
        return [scan for text in printed if has_scan(text) for scan in scans(read_plan(text))]

    def _is_too_much(self, scan: Scan) -> bool:
        whole = scan.table in self._big and scan.reads_everything
        return whole and self._names.get(scan.index or 0) not in ASKED_WHOLE

    def _in_words(self, scan: Scan) -> str:
        how = "without an Index Cond" if scan.index else "whole"
        return f"{scan.kind} on {self._names[scan.index or scan.table]}, {how}"

    def _counters(self) -> dict[int, tuple[int, int]]:
        return {oid: (scans, rows) for oid, scans, rows in self._connection.execute(COUNTERS)}

    def _explain(self, call: HotCall, size: int) -> int:
        statement = b"explain (analyze, buffers, timing off, format json) " + call.sql.encode()
        row = self._connection.execute(statement, call.arguments(size)).fetchone()
        assert row is not None
        plan = row[0][0]["Plan"]
        return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])

    @contextmanager
    def _undone(self, call: HotCall, size: int) -> Generator[None]:
        with self._connection.transaction(force_rollback=True):
            for sql, arguments in call.before(size):
                self._connection.execute(sql, arguments)
            yield


@contextmanager
def observer(database: Database, big_tables: frozenset[str]) -> Generator[Observer]:
    with database.connect_admin() as connection:
        # The plans are for us: no server log needs them.
        connection.execute("set log_min_messages = panic")
        connection.execute("set debug_pretty_print = off")
        yield Observer(connection, big_tables)
