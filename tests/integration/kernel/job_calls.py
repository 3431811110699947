"""The few calls that bring a job to where a test begins."""

from typing import Any

from tests.integration.kernel.caller import Caller

OWNER = "worker-1/boot-1"
RIVAL = "worker-2/boot-1"


def submit(caller: Caller, *, tries_max: int = 3, lease: str = "60 seconds", queue: str = "mail") -> int:
    job_id: int = caller.value(
        """select job_id from fencepost.job_submit(
             %s, 'send', '{"to": 7}', p_tries_max => %s, p_lease => %s)""",
        queue,
        tries_max,
        lease,
    )
    return job_id


def submit_keyed(caller: Caller, key: str, limit: int) -> int:
    """A job with a concurrency key."""
    job_id: int = caller.value(
        """select job_id from fencepost.job_submit(
             'mail', 'send', '{}', p_concurrency_key => %s, p_concurrency_limit => %s)""",
        key,
        limit,
    )
    return job_id


def submit_unique(caller: Caller, key: str) -> dict[str, Any]:
    return caller.row(
        "select job_id, created from fencepost.job_submit('mail', 'send', '{}', p_unique_key => %s)", key
    )


def claim(caller: Caller, job_id: int, owner: str = OWNER) -> dict[str, Any]:
    return caller.row("select * from fencepost.job_claim(%s, %s)", job_id, owner)


def claim_many(caller: Caller, job_ids: list[int], owner: str = OWNER) -> dict[int, dict[str, Any]]:
    rows = caller.rows("select * from fencepost.job_claim_many(%s, %s)", job_ids, owner)
    return {row["job_id"]: row for row in rows}


def running(caller: Caller, *, tries_max: int = 3, owner: str = OWNER) -> int:
    """A job that the owner has claimed, at attempt 1."""
    job_id = submit(caller, tries_max=tries_max)
    claim(caller, job_id, owner)
    return job_id


def finished(caller: Caller) -> int:
    job_id = running(caller)
    caller.execute("select fencepost.job_finish(%s, 1, %s)", job_id, OWNER)
    return job_id


def dead(caller: Caller) -> int:
    job_id = running(caller)
    caller.execute("select fencepost.job_bury(%s, 1, %s, 'no such address')", job_id, OWNER)
    return job_id


def cancelled(caller: Caller) -> int:
    job_id = submit(caller)
    caller.execute("select fencepost.job_cancel(%s, 'carol')", job_id)
    return job_id


def dispatched(caller: Caller, entry_id: str = "1-0") -> int:
    job_id = submit(caller)
    caller.execute("select fencepost.job_dispatched(%s, %s, 'life-1')", [job_id], [entry_id])
    return job_id


def job(caller: Caller, job_id: int) -> dict[str, Any]:
    return caller.row("select * from fencepost.jobs where job_id = %s", job_id)


def state(caller: Caller, job_id: int) -> str:
    now: str = job(caller, job_id)["state"]
    return now
