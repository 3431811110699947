"""How many rows a table was given, without a full count at each read.

Every statement that inserts adds a line with the number of its rows, in its own transaction: what is rolled
back is never counted, and no transaction waits for another's lock. Many lines are replaced by one with their
sum.
"""

from __future__ import annotations

import threading
from typing import LiteralString, Self

from fencepost_torture._system_environment import SystemEnvironment

LINES_MAX = 500

SCHEMA: LiteralString = """
    create table meter (counted bigint not null);
    create function count_inserted() returns trigger language plpgsql security definer as $f$
    begin
      insert into public.meter select count(*) from inserted having count(*) > 0;
      return null;
    end $f$;
"""
READ: LiteralString = "select coalesce(sum(counted), 0), count(*) from meter"
# Lines that others insert meanwhile are not visible to it, and stay.
FOLD: LiteralString = """
    with folded as (delete from meter returning counted)
    insert into meter select sum(counted) from folded having count(*) > 0 returning counted
"""


class RowCounter:
    """Counts the one table of a system whose trigger is `count_inserted`."""

    def __init__(self) -> None:
        # The load generator and the run both read: two that fold at once would each see a part.
        self._lock = threading.Lock()

    @classmethod
    def on(cls, env: SystemEnvironment, schema: LiteralString) -> Self:
        """Create these tables, one of which has the trigger."""
        with env.database.connect_admin() as admin:
            admin.execute(SCHEMA)
            admin.execute(schema)
        return cls()

    def read(self, env: SystemEnvironment) -> int:
        with self._lock:
            [[counted, lines]] = env.rows(READ)
            if lines > LINES_MAX:
                env.rows(FOLD)
            return int(counted)
