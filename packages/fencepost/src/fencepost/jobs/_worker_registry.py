"""Registers a worker as alive, idle or not, under a lease: dead workers disappear when their lease expires.

The name of the place also shows whether the worker uses Redis: `job-worker:alone:1` is a worker whose Redis
is down or not configured. Registration decides nothing. Jobs are claimed and fenced independently of it, so a
lost place affects the list of workers, and never a job.
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
# Workers that start together pick different places at random; each has as many free places to choose from.
CHOICE = 8
TRIES_MAX = 20


class WorkerRegistry:
    """One worker's place in the registry.

    Places are numbered and reused: a lease row is never deleted, so one for each process ever started would
    fill the table. There are at most about twice as many places as workers were ever alive at once.
    """

    def __init__(self, owner: str, *, ttl_seconds: float) -> None:
        self._owner = owner
        self._ttl_seconds = min(ttl_seconds, TTL_SECONDS_MAX)
        self._held: lease.Lease | None = None

    def keep(self, connection: psycopg.Connection, *, alone: bool = False) -> None:
        """Keep the registration while the lease lasts: in the same place, or in another one when that is
        taken, or when `alone` has changed."""
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
        """Unregister; a worker that cannot is removed when its lease ends."""
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
