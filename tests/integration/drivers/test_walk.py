"""Every call of the kernel passes through every driver, and fits the function that it names."""

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from types import ModuleType

import psycopg
import pytest

from fencepost import Call, kernel, run
from fencepost.embedded import Database
from fencepost.kernel.call import nothing
from fencepost.kernel.drivers import numbered
from tests.integration.drivers.itinerary import WALKS
from tests.integration.drivers.port import Port
from tests.integration.drivers.walking import Recorder, T


def walk_all(port: Port) -> list[Call[object]]:
    recorder = Recorder(port.run)
    for walk in WALKS.values():
        with port.transaction():
            walk(recorder)
    return recorder.calls


def modules_with_calls() -> Iterator[tuple[str, ModuleType]]:
    for found in pkgutil.iter_modules(kernel.__path__):
        module = importlib.import_module(f"{kernel.__name__}.{found.name}")
        if statements_of(module):
            yield found.name.removeprefix("_"), module


def statements_of(module: ModuleType) -> set[str]:
    """The SQL functions that the call-making functions of the module, or of the package, name."""
    makers = [
        function
        for _, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__.startswith(module.__name__)
        and str(function.__annotations__.get("return")).startswith("Call[")
    ]
    return {name for maker in makers for name in re.findall(r"fencepost\.(\w+)", inspect.getsource(maker))}


def test_every_call_passes_through_the_driver_unbent(port: Port) -> None:
    walk_all(port)


class PlainPort:
    """psycopg without a port, for the tests that look at the calls and not at the driver."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection
        self.transaction = connection.transaction
        self.savepoint = connection.transaction

    def execute(self, statement: str) -> None:
        raise NotImplementedError

    def run(self, call: Call[T]) -> T:
        return run(self._connection, call)


@pytest.fixture
def calls(database: Database) -> list[Call[object]]:
    """One of every call, as the walk makes it."""
    with database.connect() as connection:
        return walk_all(PlainPort(connection))


def test_no_call_of_the_kernel_is_left_out_of_the_walk(calls: list[Call[object]]) -> None:
    modules = dict(modules_with_calls())
    named = set[str]().union(*(statements_of(module) for module in modules.values()))

    assert set(modules) == set(WALKS), "each module that makes calls has a walk in itinerary.py"
    made = {name for call in calls for name in re.findall(r"fencepost\.(\w+)", call.sql)}
    assert named - made == set(), "these functions have no example in any walk"


def test_every_call_fits_a_function_of_the_catalog(calls: list[Call[object]], database: Database) -> None:
    """PostgreSQL itself finds the function for the name, the number of arguments and their casts."""
    with database.connect() as connection:
        problems = [problem for call in calls if (problem := misfit(connection, call)) is not None]

    assert problems == []


def misfit(connection: psycopg.Connection, call: Call[object]) -> str | None:
    """Why the statement cannot be prepared, or executed by the application."""
    try:
        connection.execute(b"prepare probe as " + numbered(call.sql).encode())
    except psycopg.Error as error:
        return f"{call.function}: {error}"
    row = connection.execute(
        """
        select cardinality(s.parameter_types),
               coalesce(
                 (select bool_and(has_function_privilege(p.oid, 'execute')) from pg_proc p
                  where p.pronamespace = 'fencepost'::regnamespace and p.proname = %s),
                 (select has_table_privilege(c.oid, 'select') from pg_class c
                  where c.relnamespace = 'fencepost'::regnamespace and c.relname = %s and c.relkind = 'v'))
        from pg_prepared_statements s where s.name = 'probe'
        """,
        (call.function, call.function),
    ).fetchone()
    connection.execute("deallocate probe")
    return None if row == (len(call.arguments), True) else f"{call.function}: {row}"


def test_the_look_at_the_catalog_sees_a_misfit(database: Database) -> None:
    """The test above would pass with a blind look."""
    with database.connect() as connection:
        assert (
            misfit(connection, Call("select fencepost.lease_fence(%s::text, %s::bigint)", ("a", 1), nothing))
            is None
        )
        assert misfit(
            connection, Call("select fencepost.lease_fence(%s::text, %s::text)", ("a", "1"), nothing)
        )
        assert misfit(connection, Call("select fencepost.lease_fenced(%s::text)", ("a",), nothing))
        assert misfit(connection, Call("select fencepost.lease_fence(%s::text, %s::bigint)", ("a",), nothing))
        assert misfit(connection, Call("select fencepost._refusal_count(%s::text)", ("mismatch",), nothing))
