"""Databases without a schema, and the schema that one has got: for tests of migrations."""

import uuid
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing, contextmanager

from fencepost.embedded import Database, PostgresServer
from tests.integration.kernel.caller import Caller
from tests.integration.kernel.catalog import describe


@contextmanager
def bare_databases(postgres: PostgresServer) -> Generator[Callable[[], Database]]:
    """As many as are asked for; at the end they are gone. The server must have the roles already."""
    with ExitStack() as stack:

        def create() -> Database:
            database = Database(postgres, f"m_{uuid.uuid4().hex}")
            database.create()
            stack.callback(database.drop)
            return database

        yield create


def schema_of(database: Database) -> object:
    with closing(Caller(database.admin_url)) as admin:
        return describe(admin)
