"""A job is in exactly one place: waiting, running or finished. No foreign key says so, hence this does."""

from fencepost.embedded import Database

STRAY = """
    select j.job_id, count(p.place) from fencepost.job j left join (
      select job_id, 'waiting' as place from fencepost.job_waiting
      union all select job_id, 'running' from fencepost.job_running
      union all select job_id, 'finished' from fencepost.job_finished
    ) p on p.job_id = j.job_id group by j.job_id having count(p.place) <> 1
"""
ORPHANS = """
    select job_id from (
      select job_id from fencepost.job_waiting union all select job_id from fencepost.job_running
      union all select job_id from fencepost.job_finished
    ) p where not exists (select 1 from fencepost.job j where j.job_id = p.job_id)
"""
LIFE = (
    "select fencepost.job_submit_many('q', 'k', array_fill('1'::jsonb, array[12]), p_tries_max => 2)",
    "select fencepost.job_dispatched(array[1, 2], array['1-1', '1-2'], 'life')",
    "select fencepost.job_claim_many(array[1, 2, 3, 4, 5, 6, 7, 8], 'w')",
    "select fencepost.job_finish_many(array[1, 2, 2, 9], array[1, 1, 1, 1], 'w')",
    "select fencepost.job_leave_many(array[3, 4, 5], array[1, 1, 1], 'w', array['release', 'retry', 'bury'])",
    "select fencepost.job_cancel(6, 'ann'), fencepost.job_cancel(10, 'ann')",
    "select fencepost.job_release(6, 1, 'w')",
    "select fencepost.job_claim_many(array[3, 4, 11], 'w', '1 millisecond')",
    # The lease of a millisecond runs out meanwhile, by the clock of the server.
    "select pg_sleep(0.002), fencepost.job_reclaim(10)",
    "select fencepost.job_replay(5, 'ann'), fencepost.job_replay(10, 'ann', 'cancelled')",
    "select fencepost.job_claim_next('q', 1, 'w', 3)",
    "select fencepost.job_prune('1 microsecond', 100)",
)


def test_every_move_leaves_each_job_in_exactly_one_place(database: Database) -> None:
    with database.connect() as service, database.connect_admin() as admin:
        for move in LIFE:
            service.execute(move.encode())
            assert admin.execute(STRAY).fetchall() == [], move
            assert admin.execute(ORPHANS).fetchall() == [], move
