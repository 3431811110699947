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
from tests.integration.drivers.port import Port
from tests.integration.drivers.walks import WALKS, Recorder, T


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
            yield found.name, module


def statements_of(module: ModuleType) -> set[str]:
    """The SQL functions that the module's call-making functions name."""
    makers = [
        function
        for _, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__
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

    assert set(modules) == set(WALKS), "each module that makes calls has a walk in walks.py"
    assert named - {call.function for call in calls} == set(), "these functions have no example in walks.py"


def test_every_call_fits_a_function_of_the_catalog(calls: list[Call[object]], database: Database) -> None:
    """By name, number of arguments and their types: each place has a cast, nothing is left to guessing."""
    with database.connect_admin() as admin:
        problems = [problem for call in calls if (problem := misfit(admin, call)) is not None]

    assert problems == []


def misfit(admin: psycopg.Connection, call: Call[object]) -> str | None:
    given = re.findall(r"%s::([\w]+(?:\[\])?)", call.sql.partition(f"fencepost.{call.function}")[2])
    row = admin.execute(
        """
        select array(select format_type(t, null)
                     from unnest(p.proargtypes::oid[]) with ordinality a (t, place) order by a.place),
               p.pronargdefaults, has_function_privilege('fencepost_app', p.oid, 'execute')
        from pg_proc p where p.pronamespace = 'fencepost'::regnamespace and p.proname = %s
        """,
        (call.function,),
    ).fetchall()
    if len(row) != 1:
        return f"{call.function}: {len(row)} functions of this name"
    wanted, defaults, allowed = row[0]
    spelled = [{"timestamptz": "timestamp with time zone"}.get(kind, kind) for kind in given]
    if spelled != wanted[: len(spelled)] or len(spelled) < len(wanted) - defaults:
        return f"{call.function}: called with {spelled}, declared as {wanted} with {defaults} defaults"
    if call.sql.count("%s") != len(call.arguments):
        return f"{call.function}: {call.sql.count('%s')} places for {len(call.arguments)} arguments"
    return None if allowed else f"{call.function}: the application may not execute it"
