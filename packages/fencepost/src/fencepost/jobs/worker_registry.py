"""A worker says that it is there, idle or not, under a lease: who dies is soon not seen any more.

Its place also says who drives it: `job-worker:alone:1` is one for which Redis is away, or not there at all.
Being seen decides nothing. Jobs are claimed and fenced whoever holds a place, so a place that is lost costs
the list of workers, and never a job.
"""

from __future__ import annotations

import random
from contextlib import suppress

import psycopg

from fencepost.errors import NotOwner
from fencepost.kernel import lease
from fencepost.kernel.drivers import run

PLACES = "job-worker:"
PLACES_ALONE = "job-worker:alone:"
TTL_SECONDS_MAX = 86_400.0
# Those who start together are kept apart by chance; each has as many free places to choose from.
CHOICE = 8
TRIES_MAX = 20


class WorkerRegistry:
    """One place among the workers.

    Places are numbered and taken over: a lease is never forgotten, so one for each process that ever was
    would fill the table. There are at most about twice as many as workers were ever there at once.
    """

    def __init__(self, owner: str, *, ttl_seconds: float) -> None:
        self._owner = owner
        self._ttl_seconds = min(ttl_seconds, TTL_SECONDS_MAX)
        self._held: lease.Lease | None = None

    def keep(self, connection: psycopg.Connection, *, alone: bool = False) -> None:
        """Be seen as long as the lease lasts: where we were, or elsewhere when another one is there, or when
        PostgreSQL drives `alone` by now, or no longer."""
        if self._held is not None and alone != self._held.resource.startswith(PLACES_ALONE):
            self.leave(connection)
        for _ in range(TRIES_MAX):
            place = self._held.resource if self._held is not None else _free_place(connection, alone)
            try:
                self._held = run(connection, lease.acquire(place, self._owner, self._ttl_seconds))
            except NotOwner:
                self._held = None
            else:
                return

    def leave(self, connection: psycopg.Connection) -> None:
        """Say so; who cannot is noticed when the lease ends."""
        held, self._held = self._held, None
        if held is not None:
            with suppress(NotOwner):
                run(connection, lease.release(held))


def _free_place(connection: psycopg.Connection, alone: bool) -> str:
    taken = {
        str(resource)
        for (resource,) in connection.execute(
            "select resource from fencepost.lease_status"
            " where resource >= 'job-worker:' and resource < 'job-worker;' and held"
        )
    }
    kind = PLACES_ALONE if alone else PLACES
    places = (f"{kind}{number}" for number in range(1, 2 * len(taken) + CHOICE + 1))
    return random.choice([place for place in places if place not in taken])  # noqa: S311 - No secret.
