"""The state machine of a job: the table in the head of its file, and a way into every corner of it."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import fencepost.kernel
from fencepost.testing import Clock
from tests.integration.kernel import job_calls
from tests.integration.kernel.caller import Caller
from tests.integration.kernel.job_calls import OWNER, RIVAL

FILE = Path(fencepost.kernel.__file__).parent / "functions" / "job.sql"
ROW = re.compile(r"^--   (\S+) +(\S+) +(\S+) +(\S.*)$")


class Move(NamedTuple):
    """One row of the table, without its guard."""

    origin: str
    event: str
    target: str


def declared_moves() -> list[Move]:
    """The table in the head of the file."""
    rows = [ROW.match(line) for line in FILE.read_text().splitlines()]
    moves = [Move(row[1], row[2], row[3]) for row in rows if row]
    assert moves.pop(0) == ("from", "event", "to")
    return moves


def _running_in_its_last_try(caller: Caller, clock: Clock) -> int:
    return job_calls.running(caller, tries_max=1)


def _asked_to_stop(caller: Caller, clock: Clock) -> int:
    job_id = job_calls.running(caller)
    caller.execute("select fencepost.job_cancel(%s, 'carol')", job_id)
    return job_id


def _late(caller: Caller, clock: Clock) -> int:
    """A job that may not be claimed yet."""
    job_id: int = caller.value(
        "select job_id from fencepost.job_submit('mail', 'send', '{}', p_run_at => '2031-01-01')"
    )
    return job_id


def _busy(caller: Caller, clock: Clock) -> int:
    """A job whose concurrency key has no slot left."""
    job_calls.claim(caller, job_calls.submit_keyed(caller, "user:7", 1), RIVAL)
    return job_calls.submit_keyed(caller, "user:7", 1)


def _busy_and_dispatched(caller: Caller, clock: Clock) -> int:
    job_id = _busy(caller, clock)
    caller.execute("select fencepost.job_dispatched(%s, '{1-0}', 'life-1')", [job_id])
    return job_id


def _paused(caller: Caller, clock: Clock) -> int:
    caller.execute("select fencepost.queue_pause('mail', 'carol')")
    return job_calls.submit(caller)


def _beside_another(caller: Caller, clock: Clock) -> int:
    job_calls.running(caller)
    return job_calls.running(caller)


def _plain(make: Callable[[Caller], int]) -> Callable[[Caller, Clock], int]:
    return lambda caller, clock: make(caller)


def _expired(make: Callable[[Caller, Clock], int]) -> Callable[[Caller, Clock], int]:
    def build(caller: Caller, clock: Clock) -> int:
        job_id = make(caller, clock)
        clock.advance(60)
        return job_id

    return build


# Every state, in each condition that a guard of the table tells apart.
SITUATIONS: Mapping[str, Callable[[Caller, Clock], int]] = {
    "pending": _plain(job_calls.submit),
    "pending, not due": _late,
    "pending, its key busy": _busy,
    "pending, its queue paused": _paused,
    "dispatched": _plain(job_calls.dispatched),
    "dispatched, its key busy": _busy_and_dispatched,
    "running": _plain(job_calls.running),
    "running, in its last try": _running_in_its_last_try,
    "running, asked to stop": _asked_to_stop,
    "running, expired": _expired(_plain(job_calls.running)),
    "running, expired beside another": _expired(_beside_another),
    "running, expired in its last try": _expired(_running_in_its_last_try),
    "running, expired, asked to stop": _expired(_asked_to_stop),
    "finished": _plain(job_calls.finished),
    "dead": _plain(job_calls.dead),
    "cancelled": _plain(job_calls.cancelled),
}

# Every event, as its call for the job %(id)s. The owner writes under attempt 1, the only one that was minted.
EVENTS: Any = {
    "dispatch": "select fencepost.job_dispatched(array[%(id)s], '{9-0}', 'life-1')",
    "recall": "select fencepost.job_recall(array[%(id)s], '{1-0}')",
    "claim": f"select fencepost.job_claim_many(array[%(id)s], '{RIVAL}')",
    "finish": f"select fencepost.job_finish(%(id)s, 1, '{OWNER}')",
    "retry": f"select fencepost.job_retry(%(id)s, 1, '{OWNER}', 'no', '0')",
    "bury": f"select fencepost.job_bury(%(id)s, 1, '{OWNER}', 'no')",
    "release": f"select fencepost.job_release(%(id)s, 1, '{OWNER}')",
    "reclaim": "select fencepost.job_reclaim_one(%(id)s)",
    "cancel": "select fencepost.job_cancel(%(id)s, 'carol')",
    "replay": """select fencepost.job_replay(%(id)s, 'carol', case (select state from fencepost.jobs
                   where job_id = %(id)s) when 'cancelled' then 'cancelled' else 'dead' end)""",
    "discard": "select fencepost.job_discard(%(id)s, 'carol')",
    "reschedule": "select fencepost.job_reschedule(%(id)s, fencepost.clock() + interval '1 hour', 'carol')",
}
