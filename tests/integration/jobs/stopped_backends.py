"""Backends of PostgreSQL that stand still: the kernel goes on acknowledging what is sent to them."""

import os
import signal
from collections.abc import Generator
from contextlib import contextmanager
from typing import LiteralString

from fencepost.embedded import Database
from fencepost.embedded._deadline import Deadline

_BACKENDS: LiteralString = (
    "select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
    " and application_name like %s and state = 'idle'"
)


@contextmanager
def stopped_backends(database: Database, application_name: str) -> Generator[None]:
    """Stops idle backends by SIGSTOP, and lets them go on after the block. Only on a server of one's own:
    another client's DROP DATABASE would wait for them."""
    stopped: set[int] = set()

    def stop() -> bool:
        with database.connect_admin() as admin:
            pids = {pid for (pid,) in admin.execute(_BACKENDS, (application_name,))}
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            stopped.update(pids)
            # One that began a statement in between may hold locks: it goes on, and the next look tries again.
            idle = {pid for (pid,) in admin.execute(_BACKENDS, (application_name,))}
        for pid in stopped - idle:
            os.kill(pid, signal.SIGCONT)
        stopped.intersection_update(idle)
        return bool(stopped)

    try:
        Deadline(60, f"an idle backend of {application_name} is stopped").wait(stop)
        yield
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
