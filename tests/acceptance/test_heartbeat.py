"""A holder's own open transaction never blocks its heartbeat."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from fencepost.kernel import job, lease
from fencepost.kernel.drivers import run
from fencepost.testing import Clock
from tests.acceptance.conftest import Shop

Connection = psycopg.Connection[Any]


@pytest.fixture
def handler(shop: Shop) -> Iterator[Connection]:
    with shop.connect() as connection:
        yield connection


@pytest.fixture
def heartbeat(shop: Shop) -> Iterator[Connection]:
    with impatient(shop) as connection:
        yield connection


@contextmanager
def impatient(shop: Shop) -> Generator[Connection]:
    """A session that fails instead of waiting for a lock."""
    with shop.connect() as connection:
        connection.execute("set lock_timeout = '1ms'")
        yield connection


def claim_jobs(connection: Connection, count: int) -> list[int]:
    payloads = [{"page": page} for page in range(count)]
    submitted = run(
        connection, job.submit_many("print", "page", payloads, job.SubmitOptions(lease_seconds=60))
    )
    ids = [each.job_id for each in submitted]
    assert [answer.outcome for answer in run(connection, job.claim_many(ids, "me"))] == ["claimed"] * count
    return ids


def test_a_lease_is_renewed_while_its_fenced_transaction_writes(
    handler: Connection, heartbeat: Connection, clock: Clock
) -> None:
    held = run(handler, lease.acquire("printer", "me", 60))
    with handler.transaction():
        run(handler, lease.fence("printer", held.token))
        handler.execute("insert into ledger (key) values ('page-1')")
        clock.advance(40)
        renewed = run(heartbeat, lease.renew(held, 60))
        assert renewed.token == held.token
        assert (renewed.expires_at - held.expires_at).total_seconds() >= 40
        clock.advance(40)
        # Past the first expiry: the renewal has counted, and another fence passes.
        run(handler, lease.fence("printer", held.token))


def test_a_job_is_renewed_while_its_fenced_transaction_writes(
    handler: Connection, heartbeat: Connection, clock: Clock
) -> None:
    (job_id,) = claim_jobs(handler, 1)
    with handler.transaction():
        run(handler, job.fence(job_id, 1, "me"))
        handler.execute("insert into ledger (key) values ('page-1')")
        clock.advance(40)
        assert run(heartbeat, job.renew(job_id, 1, "me")).refusal is None


def test_one_open_finish_does_not_hold_up_the_other_renewals(
    handler: Connection, heartbeat: Connection, clock: Clock
) -> None:
    first, second, third = claim_jobs(handler, 3)
    with handler.transaction():
        run(handler, job.fence(second, 1, "me"))
        run(handler, job.finish(job.Finish(second, 1), "me"))
        clock.advance(40)
        renewed = run(heartbeat, job.renew_many([first, second, third], [1, 1, 1], "me"))
        assert {each.job_id: each.refusal for each in renewed} == {
            first: None,
            second: "in_flight",
            third: None,
        }
    clock.advance(40)
    # Without the renewal these two would have expired by now.
    refused = run(handler, job.finish_many([job.Finish(first, 1), job.Finish(third, 1)], "me"))
    assert refused == []


def test_an_open_finish_commits_after_its_lease_ran_out_if_no_caller_took_over(
    handler: Connection, clock: Clock
) -> None:
    (job_id,) = claim_jobs(handler, 1)
    with handler.transaction():
        run(handler, job.fence(job_id, 1, "me"))
        clock.advance(61)
        run(handler, job.finish(job.Finish(job_id, 1), "me"))
    row = handler.execute("select state from fencepost.jobs where job_id = %s", (job_id,)).fetchone()
    assert row == ("finished",)
