"""A call that ends jobs one by one locks beforehand what their ends will count in, and nothing else."""

from contextlib import closing
from typing import Any

from fencepost.embedded import Database
from tests.integration.kernel import job_calls
from tests.integration.kernel.caller import Caller
from tests.integration.kernel.job_calls import OWNER

LOCK: Any = "select fencepost._batch_lock(%s, %s)"
FREE_PARTS: Any = "select batch_id, part from fencepost.job_batch_part for update skip locked"
FREE_BATCHES: Any = "select batch_id from fencepost.job_batch for update skip locked"
SUBMIT: Any = """
    select job_id from fencepost.job_submit_many(
      'mail', 'send', array_fill('1'::jsonb, array[%s]), p_tries_max => %s)
"""
MAKE: Any = "select fencepost.batch_make(%s)"


def locked(admin: Caller, database: Database, ids: list[int], buried: list[int]) -> set[tuple[int, int]]:
    """The parts that are locked for the ends of these jobs, and with them their batches alone."""
    every = {tuple(row.values()) for row in admin.rows("select batch_id, part from fencepost.job_batch_part")}
    with closing(Caller(database.admin_url)) as other, admin.transaction():
        admin.execute(LOCK, ids, buried)
        parts = every - {tuple(row.values()) for row in other.rows(FREE_PARTS)}
        batches = {batch for batch, _ in every} - set(other.column(FREE_BATCHES))
    assert batches == {batch for batch, _ in parts}
    return parts


def test_parts_and_batches_of_the_jobs_that_will_end_are_locked(
    app: Caller, admin: Caller, database: Database
) -> None:
    last_try, small, tries_left = (
        app.column(SUBMIT, 65, 1),
        app.column(SUBMIT, 1, 1),
        app.column(SUBMIT, 3, 5),
    )
    large_batch, small_batch, other_batch = (app.value(MAKE, ids) for ids in (last_try, small, tries_left))
    alone = app.column(SUBMIT, 1, 1)
    job_calls.claim_many(app, [*last_try[1:], *small, *tries_left, *alone])

    def seen(*ids: int, buried: list[int] | None = None) -> set[tuple[int, int]]:
        return locked(admin, database, list(ids), buried or [])

    assert seen(last_try[64]) == {(large_batch, 1)}
    assert seen(last_try[1], small[0], alone[0]) == {(large_batch, 0), (small_batch, 0)}
    assert seen(last_try[0]) == set(), "it waits"
    assert seen(*tries_left) == set(), "they go on"
    assert seen(*tries_left, buried=tries_left[:1]) == {(other_batch, 0)}
    app.execute("select fencepost.job_cancel(%s, 'carol')", tries_left[1])
    assert seen(tries_left[1]) == {(other_batch, 0)}
    assert seen(tries_left[2]) == set()
    # Replayed, it ends once more, and is counted already.
    app.execute("select fencepost.job_bury(%s, 1, %s, 'no')", small[0], OWNER)
    app.execute("select fencepost.job_replay(%s, 'carol')", small[0])
    job_calls.claim(app, small[0])
    assert seen(small[0]) == set()
