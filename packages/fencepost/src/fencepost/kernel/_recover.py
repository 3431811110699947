"""After a restore from a backup, or a failover that lost commits: invalidate every old token.

One transaction does it for the kernel and for every component that has its own recovery function. It needs
the login of the migrations: the services' role lacks the rights, and no service should run meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import psycopg

from fencepost.errors import MigrationFailed, ServerUnavailable
from fencepost.kernel.call import Json, text
from fencepost.kernel.drivers import translate


@dataclass(frozen=True, slots=True)
class Recovery:
    """What was found and repaired: for the kernel, and for each component by its name."""

    floor: int
    leases: int
    jobs: int
    messages: int
    components: Mapping[str, Json]


def recover(url: str, actor: str) -> Recovery:
    """Raise every token above all that were ever issued. May be repeated."""
    actor = text("actor", actor)
    try:
        connection = psycopg.connect(url, prepare_threshold=None)
    except psycopg.OperationalError as error:
        raise ServerUnavailable(f"PostgreSQL cannot be reached: {error}") from error
    with connection:
        try:
            return _recover_in(connection, actor)
        except psycopg.errors.InsufficientPrivilege as error:
            raise MigrationFailed(
                f"This login may not recover the database ({error}). Use the one that migrates it: set "
                "MIGRATION_DATABASE_URL."
            ) from error
        except psycopg.Error as error:
            raise translate(error) or error from error


def _recover_in(connection: psycopg.Connection, actor: str) -> Recovery:
    with connection.transaction():
        connection.execute("set transaction isolation level read committed")
        connection.execute("set local role fencepost_owner")
        connection.execute("set local search_path = pg_catalog, fencepost, pg_temp")
        row = connection.execute(
            "select fencepost._lineage_recover(%s::text, 0, 0, null)", (actor,)
        ).fetchone()
        assert row is not None
        return Recovery(**row[0])
