"""Two plural calls that name the same rows in opposite orders, and a third session that holds one of them up.

Without the third a plural call has all its locks before the other begins. With it, one call waits in the
middle of its rows while the other arrives: if they did not lock in one order, they would wait for each other.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import LiteralString

from tests.isolation.scenario import COMMIT, ROLLBACK, Run, Scenario, Session, Step


@dataclass(frozen=True)
class Triangle:
    """The obstacle takes a lock that both calls need, and rolls back.

    Of the two, the one that is sent first answers `first`, and the other `second`; `down` as `up`, unless it
    has answers of its own.
    """

    title: str
    given: tuple[LiteralString, ...]
    obstacle: LiteralString
    up: LiteralString
    down: LiteralString
    first: str
    second: str
    down_first: str | None = None
    down_second: str | None = None

    def scenario(self) -> Scenario:
        return Scenario(
            self.title,
            self.given,
            (
                Session("obstacle", (Step("call", self.obstacle), ROLLBACK)),
                Session("up", (Step("call", self.up), COMMIT)),
                Session("down", (Step("call", self.down), COMMIT)),
            ),
            "select 'over'",
            self._judge,
        )

    def _judge(self, run: Run) -> Iterator[str]:
        first, second = sorted(("up", "down"), key=lambda name: run[f"{name}.call"].started)
        firsts = {"up": self.first, "down": self.down_first or self.first}
        seconds = {"up": self.second, "down": self.down_second or self.second}
        waits = run.between(f"{first}.call", "obstacle.call", "obstacle")
        yield from run.expect(f"{first}.call", firsts[first], waits=waits)
        yield from run.expect(f"{second}.call", seconds[second])
        if run.open_at(first, f"{second}.call") and not run[f"{second}.call"].waited:
            yield f"{second} must wait for {first}"
        if run["obstacle.call"].answer.startswith("error"):
            yield f"the obstacle must not fail: {run['obstacle.call'].answer}"


SUBMIT_TWO = "select fencepost.job_submit_many('q', 'kind', array['{}', '{}']::jsonb[], p_lease => '1 hour')"
CLAIM_TWO = "select fencepost.job_claim_many(array[1, 2], 'a')"
TWO_BATCHES = (
    """select fencepost.job_submit_many('q', 'kind', array_fill('{}'::jsonb, array[5]), p_tries_max => 1,
                                        p_lease => '1 hour')""",
    "select fencepost.batch_make(array[1, 4])",
    "select fencepost.batch_make(array[2, 3, 5])",
)
FINISH_UP = """
select string_agg(job_id || ' ' || coalesce(refusal, 'finished'), ', ' order by job_id)
from fencepost.job_finish_many(array[1, 2], array[1, 1], 'a')
"""
FINISH_DOWN = """
select string_agg(job_id || ' ' || coalesce(refusal, 'finished'), ', ' order by job_id)
from fencepost.job_finish_many(array[2, 1], array[1, 1], 'a')
"""

_JOBS = (
    Triangle(
        "finishes of many around a progress",
        (SUBMIT_TWO, CLAIM_TWO),
        "select fencepost.job_progress(2, 1, 'a', '50')",
        FINISH_UP,
        FINISH_DOWN,
        "1 finished, 2 finished",
        "1 already_finished, 2 already_finished",
    ),
    Triangle(
        "finishes of many around a fence",
        (SUBMIT_TWO, CLAIM_TWO),
        "select fencepost.job_fence(2, 1, 'a')",
        FINISH_UP,
        FINISH_DOWN,
        "1 finished, 2 finished",
        "1 already_finished, 2 already_finished",
    ),
    Triangle(
        "leavings of many around a progress",
        (SUBMIT_TWO, CLAIM_TWO),
        "select fencepost.job_progress(2, 1, 'a', '50')",
        """select string_agg(job_id || ' ' || coalesce(refusal, state), ', ' order by job_id)
           from fencepost.job_leave_many(array[1, 2], array[1, 1], 'a', array['release', 'release'])""",
        """select string_agg(job_id || ' ' || coalesce(refusal, state), ', ' order by job_id)
           from fencepost.job_leave_many(array[2, 1], array[1, 1], 'a', array['release', 'release'])""",
        "1 pending, 2 pending",
        "1 not_running, 2 not_running",
    ),
    Triangle(
        "claims of many around a dispatch",
        (SUBMIT_TWO, "select fencepost.job_dispatched(array[1], array['1-0'], 'redis')"),
        "select job_id from fencepost.job_dispatch('q', 1, 10, '1 hour')",
        """select string_agg(job_id || ' ' || coalesce(refusal, outcome), ', ' order by job_id)
           from fencepost.job_claim_many(array[1, 2], 'a')""",
        """select string_agg(job_id || ' ' || coalesce(refusal, outcome), ', ' order by job_id)
           from fencepost.job_claim_many(array[2, 1], 'a')""",
        "1 claimed, 2 claimed",
        "1 in_flight, 2 in_flight",
    ),
    # Each job of its own, but they meet at the keys; the ids run one way and the keys the other.
    Triangle(
        "claims of many with concurrency keys",
        (
            """select fencepost.job_submit_many('q', 'kind', array_fill('{}'::jsonb, array[5]),
                 p_concurrency_keys => array['x', 'y', 'y', 'x', 'y'], p_concurrency_limit => 3)""",
        ),
        "select outcome from fencepost.job_claim_many(array[5], 'c')",
        "select string_agg(outcome, ', ') from fencepost.job_claim_many(array[1, 2], 'a')",
        "select string_agg(outcome, ', ') from fencepost.job_claim_many(array[3, 4], 'b')",
        "claimed, claimed",
        "claimed, claimed",
    ),
    Triangle(
        "submissions of many with unique keys",
        (),
        "select created from fencepost.job_submit('q', 'kind', '{}', p_unique_key => 'v')",
        """select string_agg(created::text, ', ')
           from fencepost.job_submit_many('q', 'kind', array['{}', '{}']::jsonb[],
                                          p_unique_keys => array['u', 'v'])""",
        """select string_agg(created::text, ', ')
           from fencepost.job_submit_many('q', 'kind', array['{}', '{}']::jsonb[],
                                          p_unique_keys => array['v', 'u'])""",
        "true, true",
        "false, false",
    ),
    # Jobs of two batches: the ids run one way and the batches the other.
    Triangle(
        "burials of many in two batches",
        (*TWO_BATCHES, "select fencepost.job_claim_many(array[1, 2, 3, 4, 5], 'a')"),
        "select fencepost.job_finish(5, 1, 'a')",
        """select string_agg(coalesce(refusal, state), ', ')
           from fencepost.job_leave_many(array[1, 2], array[1, 1], 'a', array['bury', 'bury'])""",
        """select string_agg(coalesce(refusal, state), ', ')
           from fencepost.job_leave_many(array[3, 4], array[1, 1], 'a', array['bury', 'bury'])""",
        "dead, dead",
        "dead, dead",
    ),
    # As a chunk does in one transaction: what one finishes, the other buries.
    Triangle(
        "finishes and burials together in two batches",
        (*TWO_BATCHES, "select fencepost.job_claim_many(array[1, 2, 3, 4, 5], 'a')"),
        "select fencepost.job_finish(5, 1, 'a')",
        """with f as materialized (
             select coalesce(refusal, 'finished') as said
             from fencepost.job_finish_many(array[1], array[1], 'a', p_leaving => array[2]))
           select f.said || ', ' || coalesce(l.refusal, l.state)
           from f cross join lateral fencepost.job_leave_many(
             case when f.said <> '' then array[2]::bigint[] end, array[1], 'a', array['bury']) l""",
        """with f as materialized (
             select coalesce(refusal, 'finished') as said
             from fencepost.job_finish_many(array[3], array[1], 'a', p_leaving => array[4]))
           select f.said || ', ' || coalesce(l.refusal, l.state)
           from f cross join lateral fencepost.job_leave_many(
             case when f.said <> '' then array[4]::bigint[] end, array[1], 'a', array['bury']) l""",
        "finished, dead",
        "finished, dead",
    ),
    Triangle(
        "a reclaim and a finish of many in two batches",
        (
            *TWO_BATCHES,
            "select fencepost.job_claim_many(array[3], 'c', '50 minutes')",
            "select fencepost.job_claim_many(array[4], 'd', '51 minutes')",
            "select isolation.at(3120)",
            "select fencepost.job_claim_many(array[1, 2, 5], 'a')",
        ),
        "select fencepost.job_finish(5, 1, 'a')",
        """select string_agg(coalesce(refusal, 'finished'), ', ')
           from fencepost.job_finish_many(array[1, 2], array[1, 1], 'a')""",
        "select string_agg(job_id || ' ' || state, ', ' order by job_id) from fencepost.job_reclaim(10)",
        "finished, finished",
        "finished, finished",
        "3 dead, 4 dead",
        "3 dead, 4 dead",
    ),
    Triangle(
        "records of dispatches around a cancel",
        (SUBMIT_TWO,),
        "select fencepost.job_cancel(2, 'anna')",
        "select fencepost.job_dispatched(array[1, 2], array['1-0', '2-0'], 'redis')",
        "select fencepost.job_dispatched(array[2, 1], array['2-0', '1-0'], 'redis')",
        "2",
        "0",
    ),
)

PUT_PLAIN = "select fencepost.outbox_put('c', null, '{}')"
PUT_KEYED = "select fencepost.outbox_put('c', 'k', '{}')"
TAKE = "select fencepost.outbox_take('c', 'w', '1 hour', 10)"
SETTLE_UP = """
select string_agg(id || ' ' || coalesce(refusal, 'settled'), ', ' order by id)
from fencepost.outbox_settle_many(array[1, 2], array[1, 1], 'w', array['sent', 'sent'])
"""
SETTLE_DOWN = """
select string_agg(id || ' ' || coalesce(refusal, 'settled'), ', ' order by id)
from fencepost.outbox_settle_many(array[2, 1], array[1, 1], 'w', array['sent', 'sent'])
"""
_OUTBOX = (
    Triangle(
        "settlements of many around a renewal",
        (PUT_PLAIN, PUT_PLAIN, TAKE),
        "select refusal from fencepost.outbox_renew(array[2], array[1], 'w', '1 hour')",
        SETTLE_UP,
        SETTLE_DOWN,
        "1 settled, 2 settled",
        "1 already_finished, 2 already_finished",
    ),
    # The message without a key could be settled by the quick statement, before the one that has a key.
    Triangle(
        "a settlement of many and a renewal of many",
        (PUT_KEYED, PUT_PLAIN, TAKE),
        "select refusal from fencepost.outbox_renew(array[1], array[1], 'w', '1 hour')",
        SETTLE_UP,
        """select string_agg(id || ' ' || coalesce(refusal, 'renewed'), ', ' order by id)
           from fencepost.outbox_renew(array[2, 1], array[1, 1], 'w', '1 hour')""",
        "1 settled, 2 settled",
        "1 settled, 2 settled",
        "1 renewed, 2 renewed",
        "1 not_found, 2 not_found",
    ),
    Triangle(
        "puts of many with keys",
        (),
        "select fencepost.outbox_put('c', 'l', '{}')",
        "select count(*) from fencepost.outbox_put_many('c', array['k', 'l'], array['{}', '{}']::jsonb[])",
        "select count(*) from fencepost.outbox_put_many('c', array['l', 'k'], array['{}', '{}']::jsonb[])",
        "2",
        "2",
    ),
)

HOLD_TWO = "select fencepost.lease_acquire_many(array['r', 's'], 'a', '1 hour')"

_LEASES = (
    Triangle(
        "takeovers of many leases",
        (HOLD_TWO, "select isolation.at(3601)"),
        "select fencepost.lease_release('s', 'a', 1)",
        """select string_agg(resource || ' ' || coalesce(refusal, token::text), ', ' order by resource)
           from fencepost.lease_acquire_many(array['r', 's'], 'b', '1 hour')""",
        """select string_agg(resource || ' ' || coalesce(refusal, token::text), ', ' order by resource)
           from fencepost.lease_acquire_many(array['s', 'r'], 'c', '1 hour')""",
        "r 2, s 2",
        "r not_owner, s not_owner",
    ),
    Triangle(
        "renewals of many leases",
        (HOLD_TWO,),
        "select fencepost.lease_release('s', 'a', 1)",
        """select string_agg(resource || ' ' || coalesce(refusal, 'renewed'), ', ' order by resource)
           from fencepost.lease_renew_many(array['r', 's'], 'a', array[1, 1], '1 hour')""",
        """select string_agg(resource || ' ' || coalesce(refusal, 'renewed'), ', ' order by resource)
           from fencepost.lease_renew_many(array['s', 'r'], 'a', array[1, 1], '1 hour')""",
        "r renewed, s renewed",
        "r renewed, s renewed",
    ),
    Triangle(
        "releases of many leases",
        (HOLD_TWO,),
        "select fencepost.lease_acquire('s', 'a', '1 hour')",
        """select string_agg(resource || ' ' || coalesce(refusal, 'released'), ', ' order by resource)
           from fencepost.lease_release_many(array['r', 's'], 'a', array[1, 1])""",
        """select string_agg(resource || ' ' || coalesce(refusal, 'released'), ', ' order by resource)
           from fencepost.lease_release_many(array['s', 'r'], 'a', array[1, 1])""",
        "r released, s released",
        "r not_owner, s not_owner",
    ),
)

JOBS = tuple(triangle.scenario() for triangle in _JOBS)
OUTBOX = tuple(triangle.scenario() for triangle in _OUTBOX)
LEASES = tuple(triangle.scenario() for triangle in _LEASES)
