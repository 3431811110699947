"""Django's connection inside atomic(), configured in this process for one test's database."""

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, LiteralString, TypeVar

import django
from django.conf import settings
from django.db import connection, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg.conninfo import conninfo_to_dict

from fencepost import Call, run
from tests.integration.drivers.port import Port

T = TypeVar("T")


class DjangoPort:
    def __init__(self, wrapper: BaseDatabaseWrapper) -> None:
        self._wrapper = wrapper

    def transaction(self) -> AbstractContextManager[object]:
        return transaction.atomic()

    def savepoint(self) -> AbstractContextManager[object]:
        return transaction.atomic()

    def execute(self, statement: LiteralString) -> None:
        with self._wrapper.cursor() as cursor:
            cursor.execute(statement)

    def run(self, call: Call[T]) -> T:
        return run(self._wrapper, call)


@contextmanager
def plain(url: str) -> Generator[Port]:
    """`from django.db import connection`: a proxy for the connection of this thread."""
    with configured(url):
        yield DjangoPort(connection)


@contextmanager
def wrapper(url: str) -> Generator[Port]:
    """`connections["default"]`: the connection itself; here with parameters bound by the server."""
    with configured(url, server_side_binding=True):
        yield DjangoPort(connections["default"])


@contextmanager
def configured(url: str, **options: Any) -> Generator[None]:
    """Django's default database is the one at `url`, inside the block."""
    if not settings.configured:
        # Once in a process, and without Django's own logging: other tests look at the log.
        settings.configure(USE_TZ=True, LOGGING_CONFIG=None)
        django.setup()
    address = conninfo_to_dict(url)
    connections.settings = connections.configure_settings(
        {
            "default": {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": address["dbname"],
                "USER": address["user"],
                "HOST": address["host"],
                "PORT": address.get("port", ""),
                "OPTIONS": options,
            }
        }
    )
    try:
        yield
    finally:
        connections.close_all()
        del connections["default"]
