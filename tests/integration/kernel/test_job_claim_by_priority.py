"""Claims from all priorities of a queue by one statement."""

from collections import Counter
from datetime import timedelta

from fencepost.testing import Clock
from tests.integration.kernel import job_calls
from tests.integration.kernel.caller import Caller
from tests.integration.kernel.job_calls import OWNER


def submit_counts(app: Caller, *counts: int) -> None:
    for priority, count in enumerate(counts):
        app.execute(
            "select fencepost.job_submit_many('mail', 'send', array_fill('{}'::jsonb, array[%s]), %s)",
            count,
            priority,
        )


def by_priority(app: Caller, limit: int, turn: int | None = None) -> Counter[int]:
    priorities = "select priority from fencepost.job_claim_by_priority('mail', %s, %s, p_turn => %s)"
    return Counter(app.column(priorities, OWNER, limit, turn))


def test_all_priorities_are_claimed_by_one_statement_each_its_share(app: Caller) -> None:
    submit_counts(app, 30, 30, 30, 30)

    assert by_priority(app, 15) == {0: 8, 1: 4, 2: 2, 3: 1}


def test_a_counter_of_calls_leaves_no_priority_out_for_long(app: Caller) -> None:
    submit_counts(app, 30, 30, 30, 30)

    claimed = {priority for turn in range(30) for priority in by_priority(app, 1, turn)}

    assert claimed == {0, 1, 2, 3}


def test_what_a_priority_has_no_jobs_for_goes_to_the_others(app: Caller) -> None:
    submit_counts(app, 0, 3, 0, 100)

    assert by_priority(app, 50) == {1: 3, 3: 47}
    assert by_priority(app, 100) == {3: 53}
    assert by_priority(app, 100) == {}


def test_priorities_are_claimed_with_what_redis_held_when_it_is_gone(app: Caller, clock: Clock) -> None:
    later = clock.now() + timedelta(seconds=10)
    app.execute("select fencepost.job_submit('mail', 'send', '{}', p_run_at => %s)", later)
    driven, waiting = job_calls.dispatched(app), job_calls.submit(app)
    priorities = "select job_id from fencepost.job_claim_by_priority('mail', %s, 10, null, %s)"

    assert app.column(priorities, OWNER, False) == [waiting]
    assert app.column(priorities, OWNER, True) == [driven]


def test_a_caller_that_knows_where_to_begin_passes_over_what_was_due_before(
    app: Caller, clock: Clock
) -> None:
    submit_counts(app, 1, 1)
    clock.advance(10)
    beginning = clock.now()
    submit_counts(app, 1, 1)
    priorities = "select priority from fencepost.job_claim_by_priority('mail', %s, 10, p_since => %s)"

    # No time is given for the urgent priority, so all of it is due.
    assert Counter(app.column(priorities, OWNER, [None, beginning, None, None])) == {0: 2, 1: 1}
    assert app.column(priorities, OWNER, [None, beginning, None, None]) == []
    assert app.column(priorities, OWNER, None) == [1]


def test_where_one_priority_alone_is_claimed_from_a_moment_on_its_older_jobs_stay(
    app: Caller, clock: Clock
) -> None:
    submit_counts(app, 0, 2)
    clock.advance(10)
    beginning = clock.now()
    submit_counts(app, 0, 3)
    priorities = "select priority from fencepost.job_claim_by_priority('mail', %s, %s, p_since => %s)"

    assert app.column(priorities, OWNER, 10, [beginning] * 4) == [1, 1, 1]
    assert app.column(priorities, OWNER, 10, None) == [1, 1]


def test_priorities_of_a_paused_queue_are_left_alone(app: Caller) -> None:
    submit_counts(app, 1, 1, 1, 1)
    app.execute("select fencepost.queue_pause('mail', 'carol')")

    assert by_priority(app, 10) == {}


def test_priorities_are_claimed_within_the_limits_of_their_keys(app: Caller) -> None:
    """One job with a key among others: all of them are looked at, one by one."""
    limited = """
        select job_id from fencepost.job_submit_many(
          'mail', 'send', '{1, 2, 3}', p_concurrency_keys => '{k, k, null}', p_concurrency_limit => 1)
    """
    first, second, free = app.column(limited)

    answers = app.rows("select job_id, outcome from fencepost.job_claim_by_priority('mail', %s, 10)", OWNER)

    assert {answer["job_id"]: answer["outcome"] for answer in answers} == {
        first: "claimed",
        second: "deferred",
        free: "claimed",
    }
