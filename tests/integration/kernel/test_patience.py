"""A takeover has the patience that it is given, is made at its own level, and keeps to its bounds."""

from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from fencepost.embedded import Database
from fencepost.embedded._database import SERVICE
from fencepost.kernel.call import Call, column, scalar
from fencepost.kernel.eviction import EvictionDelay, Takeover, connecting, of_lease, take_over, take_over_sync
from fencepost.kernel.lease import Lease

NONE = EvictionDelay(seconds_max=0)


async def test_without_patience_what_is_free_is_taken(database: Database) -> None:
    def connect() -> AbstractContextManager[psycopg.Connection[Any]]:
        return psycopg.connect(database.url)

    first = take_over_sync(connect, of_lease("printer", "a", 60, grace_seconds=0), NONE)
    again = await take_over(
        partial(connecting, database.url), of_lease("printer", "a", 60, grace_seconds=0), NONE
    )

    assert (first.token, again.token) == (1, 1)


SERIALIZABLE = "-c default_transaction_isolation=serializable"
SHORT = EvictionDelay(
    first_pause_seconds=0.01, longest_pause_seconds=0.01, seconds_max=0.2, idle_seconds_max=7
)
BOUNDS: Call[str] = Call(
    "select current_setting('lock_timeout') || ' ' || current_setting('idle_in_transaction_session_timeout')",
    (),
    scalar,
)


def with_options(url: str, options: str) -> str:
    return make_conninfo(url, options=options)


async def test_a_takeover_is_judged_at_its_own_level_whatever_the_connection_is_used_to(
    database: Database,
) -> None:
    # Not by a pooler: it takes no options.
    url = with_options(database.server.url(database.name, SERVICE), SERIALIZABLE)
    takeover = of_lease("printer", "a", 60, grace_seconds=0)

    first = take_over_sync(lambda: psycopg.connect(url), takeover)
    again = await take_over(lambda: connecting(url), takeover)

    assert (first.token, again.token) == (1, 1)


@pytest.mark.parametrize(("patience", "bounds"), [(SHORT, "200ms 7s"), (None, "30s 5s")])
async def test_a_takeover_waits_and_stands_still_no_longer_than_its_patience(
    database: Database, patience: EvictionDelay | None, bounds: str
) -> None:
    takeover = Takeover(BOUNDS, lambda waiter, seen: Call("select 1", (), column))

    assert take_over_sync(lambda: psycopg.connect(database.url), takeover, patience) == bounds
    assert await take_over(partial(connecting, database.url), takeover, patience) == bounds


async def test_a_takeover_that_stays_blocked_ends_with_its_patience(database: Database) -> None:
    """The holder has not expired, so no backend is ended."""
    takeover = of_lease("printer", "b", 60, grace_seconds=0)
    with psycopg.connect(database.url) as holder, psycopg.connect(database.admin_url) as admin:
        holder.execute("select fencepost.lease_acquire('printer', 'a', '1 minute')")
        holder.execute("select fencepost.lease_release('printer', 'a', 1)")
        holder.commit()
        admin.execute("select from fencepost.lease for update")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            take_over_sync(lambda: psycopg.connect(database.url), free(takeover), SHORT)
        with pytest.raises(psycopg.errors.LockNotAvailable):
            await take_over(partial(connecting, database.url), free(takeover), SHORT)


def free(takeover: Takeover[Lease]) -> Takeover[Lease]:
    """It looks, and evicts no backend."""
    return Takeover(takeover.attempt, lambda waiter, seen: Call("select %s::integer", (waiter,), column))
