"""A takeover that nobody blocks needs no patience: whoever has none does not look who is in the way."""

from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import psycopg

from fencepost.embedded import Database
from fencepost.kernel.eviction import Patience, connecting, of_lease, take_over, take_over_sync

NONE = Patience(seconds_max=0)


async def test_without_patience_what_is_free_is_taken(database: Database) -> None:
    def connect() -> AbstractContextManager[psycopg.Connection[Any]]:
        return psycopg.connect(database.url)

    first = take_over_sync(connect, of_lease("printer", "a", 60, grace_seconds=0), NONE)
    again = await take_over(
        partial(connecting, database.url), of_lease("printer", "a", 60, grace_seconds=0), NONE
    )

    assert (first.token, again.token) == (1, 1)
