"""The few calls that bring a workflow to where a test begins."""

import json
from typing import Any

from tests.integration.kernel import job_calls
from tests.integration.kernel.caller import Caller
from tests.integration.kernel.job_calls import OWNER

UNDO = {"queue": "undo", "kind": "unreserve", "payload": {"n": 1}}


def start(caller: Caller, *, tries_max: int = 3, version: int = 1) -> int:
    job_id: int = caller.value(
        """select job_id from fencepost.workflow_start('orders', 'fulfil', %s, '{"order_id": 7}',
             p_tries_max => %s)""",
        version,
        tries_max,
    )
    return job_id


def running(caller: Caller, *, tries_max: int = 3, owner: str = OWNER) -> int:
    """A workflow that the owner has claimed, at attempt 1."""
    job_id = start(caller, tries_max=tries_max)
    job_calls.claim(caller, job_id, owner)
    return job_id


def step(
    caller: Caller,
    job_id: int,
    name: str,
    *,
    attempt: int = 1,
    result: Any = None,
    undo: dict[str, Any] | None = None,
    digest: str = "d",
) -> None:
    caller.execute(
        "select fencepost.step_commit(%s, %s, %s, %s, %s, %s, %s)",
        job_id,
        attempt,
        OWNER,
        name,
        digest,
        json.dumps(result),
        None if undo is None else json.dumps(undo),
    )


def steps(caller: Caller, job_id: int) -> list[Any]:
    """Name, what, digest, result and whether it is large, in order."""
    found: list[Any] = caller.value("select steps from fencepost.workflow_load(%s)", job_id)
    return found


def names(caller: Caller, job_id: int) -> list[str]:
    return [step[0] for step in steps(caller, job_id)]


def sleep(caller: Caller, job_id: int, name: str, delay: str, *, attempt: int = 1) -> Any:
    return caller.value(
        "select fencepost.workflow_sleep(%s, %s, %s, %s, 'd', %s::interval)",
        job_id,
        attempt,
        OWNER,
        name,
        delay,
    )


def wait_for(
    caller: Caller, job_id: int, event: str, *, attempt: int = 1, timeout: str | None = None
) -> dict[str, Any]:
    return caller.row(
        "select * from fencepost.event_await(%s, %s, %s, %s, %s, %s::interval)",
        job_id,
        attempt,
        OWNER,
        event,
        event,
        timeout,
    )


def undos(caller: Caller, job_id: int) -> list[tuple[str, str, bool]]:
    """The jobs that undo a workflow, in the order of their submission: step, state, and whether it is due."""
    rows = caller.rows(
        """select headers ->> 'undo_step' as step, state, coalesce(run_at < '9000-01-01', false) as due
           from fencepost.jobs where headers ->> 'undo_of' = %s order by job_id""",
        str(job_id),
    )
    return [(row["step"], row["state"], row["due"]) for row in rows]
