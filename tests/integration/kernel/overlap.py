"""Two callers at once: one call in a thread, and the moment at which it waits for a lock."""

from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, LiteralString

from fencepost.embedded._deadline import Deadline
from tests.integration.kernel.caller import Caller

SECONDS_MAX = 30
IS_BLOCKED: LiteralString = """
    with here as (select pid from pg_stat_activity where datname = current_database())
    select exists (
      select from here where cardinality(pg_blocking_pids(pid)) > 0
        and (pid = %s or not exists (select from here where pid = %s)))
"""


@contextmanager
def begun(caller: Caller, query: LiteralString, *values: Any) -> Generator[Future[list[dict[str, Any]]]]:
    """The call runs beside the block; the block sees to it that the call can end."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        try:
            yield pool.submit(caller.rows, query, *values)
        except BaseException:
            # The test has failed: what it would have done to free the call will not happen.
            caller.connection.cancel_safe()
            raise


def wait_until_blocked(admin: Caller, caller: Caller) -> None:
    """Return when the caller waits for a lock that another session holds.

    A pooler tells its clients numbers of its own: then it is any backend in the database of the test.
    """
    Deadline(SECONDS_MAX, f"backend {caller.pid} waits for a lock").wait(
        lambda: bool(admin.value(IS_BLOCKED, caller.pid, caller.pid))
    )


def wait_until_gone(admin: Caller, pid: int) -> None:
    """Return when the backend has ended."""
    Deadline(SECONDS_MAX, f"backend {pid} has ended").wait(
        lambda: not admin.value("select exists (select from pg_stat_activity where pid = %s)", pid)
    )
