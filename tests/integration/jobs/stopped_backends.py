"""Backends of PostgreSQL that stand still: the kernel goes on acknowledging what is sent to them."""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import LiteralString

from fencepost.embedded import Database
from fencepost.embedded._deadline import Deadline

_BACKENDS: LiteralString = (
    "select pid, state = 'idle' from pg_stat_activity where datname = current_database()"
    " and pid <> pg_backend_pid() and application_name like %s"
)


@asynccontextmanager
async def stopped_backends(
    database: Database, application_name: str, *, entry: bool = False
) -> AsyncGenerator[None]:
    """Stops the backends by SIGSTOP while they are idle, and lets them go on after the block; with `entry`
    the server accepts no new ones either. Only on a server of one's own: another client's DROP DATABASE would
    wait for them."""
    stopped: set[int] = set()
    with database.connect_admin() as admin:
        admin.autocommit = True

        def backends() -> dict[int, bool]:
            return {int(pid): bool(idle) for pid, idle in admin.execute(_BACKENDS, (application_name,))}

        def stop() -> bool:
            for pid, idle in backends().items():
                if idle and pid not in stopped:
                    os.kill(pid, signal.SIGSTOP)
                    stopped.add(pid)
            # One that began a statement in between may hold locks: it goes on, and the next look tries again.
            seen = backends()
            for pid in [pid for pid in stopped if not seen.get(pid)]:
                os.kill(pid, signal.SIGCONT)
                stopped.discard(pid)
            return bool(stopped) and stopped == seen.keys()

        gate = [database.server.pids[0]] if entry else []
        try:
            for pid in gate:
                os.kill(pid, signal.SIGSTOP)
            # In a thread: a worker of this event loop that is in a transaction must end it to become idle.
            await asyncio.to_thread(
                Deadline(60, f"every backend of {application_name} is stopped").wait, stop
            )
            yield
        finally:
            for pid in [*stopped, *gate]:
                os.kill(pid, signal.SIGCONT)
