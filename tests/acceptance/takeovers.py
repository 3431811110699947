"""The two nouns that can be taken over, in one shape, so that every test speaks of both."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg

from fencepost.kernel import eviction, job, lease
from fencepost.kernel.drivers import run
from fencepost.testing import Child
from tests.acceptance import actors

Connection = psycopg.Connection[Any]

# A fence ends a session that idles for half its lease, in real time. Expiry is moved by the clock, so a long
# lease is as soon over as a short one: it keeps that timeout out of tests of something else.
SHORT_LEASE_SECONDS = 1.5
LONG_LEASE_SECONDS = 600.0


@dataclass(frozen=True)
class Noun:
    """How one noun is held by a child, taken over by us, and used by the new holder."""

    name: str
    prepare: Callable[[Connection, float], None]
    hold: Callable[[str, str, float], Child]
    takeover: Callable[[float], eviction.Takeover[Any]]
    work: Callable[[Connection], None]


def _prepare_nothing(_connection: Connection, _lease_seconds: float) -> None:
    """A lease comes into being with its first holder."""


def _hold_lease(url: str, posture: str, lease_seconds: float) -> Child:
    return Child(actors.hold_lease, url, posture, f"{lease_seconds} seconds")


def _lease_takeover(grace_seconds: float) -> eviction.Takeover[Any]:
    return eviction.of_lease("printer", "new", 60, grace_seconds=grace_seconds)


def _work_with_lease(connection: Connection) -> None:
    held = run(connection, lease.acquire("printer", "new", 60))
    with connection.transaction():
        run(connection, lease.fence("printer", held.token))
        _write(connection, held.token)


JOB_ID = 1


def _submit_job(connection: Connection, lease_seconds: float) -> None:
    assert (
        run(
            connection, job.submit("print", "page", {}, job.SubmitOptions(lease_seconds=lease_seconds))
        ).job_id
        == JOB_ID
    )


def _hold_job(url: str, posture: str, _lease_seconds: float) -> Child:
    return Child(actors.hold_job, url, posture, JOB_ID)


def _job_takeover(grace_seconds: float) -> eviction.Takeover[Any]:
    return eviction.of_job(JOB_ID, grace_seconds=grace_seconds)


def _work_on_job(connection: Connection) -> None:
    running = run(connection, job.claim(JOB_ID, "new"))
    with connection.transaction():
        run(connection, job.fence(JOB_ID, running.attempt, "new"))
        _write(connection, running.attempt)
        run(connection, job.finish(job.Finish(JOB_ID, running.attempt), "new"))


def _write(connection: Connection, token: int) -> None:
    connection.execute("insert into ledger (key, token, who) values ('page-1', %s, 'new')", (token,))


NOUNS = [
    Noun("lease", _prepare_nothing, _hold_lease, _lease_takeover, _work_with_lease),
    Noun("job", _submit_job, _hold_job, _job_takeover, _work_on_job),
]


@dataclass(frozen=True)
class Holder:
    """A process that was stopped inside its fenced transaction, and the backend that serves it."""

    child: Child
    backend: int


@contextmanager
def paused_holder(
    noun: Noun, url: str, posture: str, lease_seconds: float = LONG_LEASE_SECONDS
) -> Generator[Holder]:
    with psycopg.connect(url, autocommit=True) as connection:
        noun.prepare(connection, lease_seconds)
    with noun.hold(url, posture, lease_seconds) as child:
        backend = int(child.line("holding").split()[1])
        child.stop()
        yield Holder(child, backend)


def outcome_after_waking(holder: Holder) -> str:
    """What the holder's commit came to when it went on."""
    holder.child.resume()
    holder.child.say("go on")
    outcome = holder.child.line("outcome")
    holder.child.succeed()
    return outcome
