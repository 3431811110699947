"""Registers a worker as alive, idle or not, under a lease: dead workers disappear when their lease expires.

The name of the place also shows whether the worker uses Redis: `job-worker:alone:1` is a worker whose Redis
is down or not configured. A registered worker announces which queues and kinds it serves, and which arguments
it knows, so that work without a worker is seen. Registration decides nothing. Jobs are claimed and fenced
independently of it, so a lost place affects the list of workers, and never a job.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress

import psycopg

from fencepost.errors import NotOwner
from fencepost.kernel import _job_need as job_need
from fencepost.kernel import lease
from fencepost.kernel._job_need import Serves
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

    def __init__(self, owner: str, queues: Sequence[str], serves: Serves, *, ttl_seconds: float) -> None:
        self._owner = owner
        self._queues = queues
        self._serves = serves
        self._announced: tuple[str, int] | None = None
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
                self._announce(connection, self._held)
                return

    def _announce(self, connection: psycopg.Connection, held: lease.Lease) -> None:
        """Once for each acquisition: what this worker serves is true for as long as it runs."""
        place = (held.resource, held.token)
        if place != self._announced:
            run(connection, job_need.announce_worker(*place, self._queues, self._serves))
            self._announced = place

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
