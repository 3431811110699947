"""Rates: tokens shared by all workers, taken at the claim; who finds none waits, its tries untouched."""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

import psycopg
import pytest

from fencepost import Fencepost, InvalidInput, Job, Rate, run
from fencepost.embedded import Database
from fencepost.jobs._scheduler import declare
from fencepost.kernel import _job_need as job_need
from fencepost.kernel import job as kernel_job
from fencepost.kernel import rate as kernel_rate
from fencepost.kernel._job_need import Serves
from fencepost.kernel.rate import Limit
from fencepost.testing import Clock
from tests.integration.job_features.conftest import Working
from tests.integration.job_features.probes import Probes

OWNER = "worker"


async def submit(fp: Fencepost, count: int, *, kind: str = "mail", key: str | None = None) -> list[int]:
    headers = None if key is None else [{"rate_key": key}] * count
    jobs = await fp.run(kernel_job.submit_many("work", kind, [None] * count, headers=headers))
    return [job.job_id for job in jobs]


async def claim(fp: Fencepost, job_ids: Sequence[int]) -> list[int]:
    """The ids that could be had."""
    answers = await fp.run(kernel_job.claim_many(job_ids, OWNER))
    return sorted(answer.job_id for answer in answers if answer.running)


async def claim_next(fp: Fencepost, limit: int = 100) -> list[int]:
    answers = await fp.run(kernel_job.claim_by_priority("work", OWNER, limit))
    return sorted(answer.job_id for answer in answers if answer.running)


@pytest.fixture
def clock(clock: Clock) -> Clock:
    clock.freeze()
    return clock


async def test_a_queue_starts_as_many_as_it_has_tokens_and_then_at_its_rate(
    fp: Fencepost, clock: Clock
) -> None:
    await fp.run(kernel_rate.limit_queue("work", Limit(2, 3), "test"))
    jobs = await submit(fp, 10)
    assert await claim_next(fp) == jobs[:3], "the burst"
    assert await claim_next(fp) == []
    clock.advance(1)
    assert await claim_next(fp) == jobs[3:5]
    clock.advance(0.4)
    assert await claim_next(fp) == []
    clock.advance(0.1)
    assert await claim_next(fp) == jobs[5:6]
    clock.advance(3600)
    assert await claim_next(fp) == jobs[6:9], "a bucket holds no more than its burst"


async def test_a_job_that_finds_no_token_waits_and_its_tries_are_untouched(
    fp: Fencepost, clock: Clock, probes: Probes
) -> None:
    await fp.run(kernel_rate.declare({"mail": Limit(1, 1)}))
    first, second = await submit(fp, 2)
    assert await claim(fp, [first, second]) == [first]
    [(attempt, tries, dispatched)] = probes.rows(
        "select attempt, tries, dispatched_at from fencepost.job_waiting where job_id = %s", second
    )
    assert (attempt, tries, dispatched) == (0, 0, None)
    clock.advance(1)
    assert await claim_next(fp) == [second]
    assert probes.value("select tries from fencepost.jobs where job_id = %s", second) == 1


async def test_each_key_has_a_bucket_of_its_own(fp: Fencepost, clock: Clock) -> None:
    await fp.run(kernel_rate.declare({"mail": Limit(1, 2)}))
    of_ann, of_bob = await submit(fp, 5, key="ann"), await submit(fp, 3, key="bob")
    other = await submit(fp, 2, kind="print")
    assert await claim(fp, of_ann + of_bob + other) == [*of_ann[:2], *of_bob[:2], *other]


async def test_a_caller_that_waits_for_a_key_does_not_hold_up_the_others(fp: Fencepost, clock: Clock) -> None:
    await fp.run(kernel_rate.declare({"mail": Limit(1, 1)}))
    of_ann = await submit(fp, 50, key="ann")
    of_bob = await submit(fp, 1, key="bob")
    assert await claim_next(fp, limit=20) == of_ann[:1]
    assert await claim_next(fp, limit=40) == of_bob, "those of ann have a later turn by now"


async def test_jobs_without_a_token_take_turns_in_their_order(
    fp: Fencepost, clock: Clock, probes: Probes
) -> None:
    await fp.run(kernel_rate.declare({"mail": Limit(1, 1)}))
    jobs = await submit(fp, 5)
    assert await claim(fp, jobs) == jobs[:1]
    turns = "select run_at from fencepost.job_waiting order by run_at"
    assert [(at - clock.now()).total_seconds() for at in probes.column(turns)] == pytest.approx([1, 2, 3, 4])
    late = await submit(fp, 1)
    ran: list[int] = []
    for _ in range(5):
        clock.advance(1)
        ran += await claim_next(fp)
    assert ran == [*jobs[1:], *late], "a newcomer does not take the token of one that lined up"


async def test_a_turn_is_never_promised_further_ahead_than_two_minutes(
    fp: Fencepost, clock: Clock, probes: Probes
) -> None:
    """So that a job of an hour's line notices a rate that was raised."""
    await fp.run(kernel_rate.declare({"mail": Limit(0.01, 1)}))
    jobs = await submit(fp, 5)
    await claim(fp, jobs)
    assert probes.value("select max(run_at) from fencepost.job_waiting") <= clock.now() + TWO_MINUTES
    await fp.run(kernel_rate.declare({"mail": Limit(100, 100)}))
    clock.advance(120)
    assert await claim_next(fp) == jobs[1:]


TWO_MINUTES = timedelta(minutes=2)


async def test_a_job_takes_a_token_of_its_queue_and_of_its_kind_or_of_neither(
    fp: Fencepost, clock: Clock, probes: Probes
) -> None:
    await fp.run(kernel_rate.limit_queue("work", Limit(1, 2), "test"))
    await fp.run(kernel_rate.declare({"mail": Limit(1, 1)}))
    mails, prints = await submit(fp, 3), await submit(fp, 3, kind="print")
    assert await claim(fp, mails) == mails[:1], "the second mail found no token of its kind"
    assert await claim(fp, prints) == prints[:1], "and took none of the queue"
    tokens = "select name, tokens from fencepost.job_bucket order by name"
    assert probes.rows(tokens) == [("kind:mail", 0), ("queue:work", 0)]


async def test_a_claim_that_does_not_commit_takes_no_token(
    database: Database, fp: Fencepost, clock: Clock
) -> None:
    await fp.run(kernel_rate.limit_queue("work", Limit(1, 1), "test"))
    [job] = await submit(fp, 1)
    with psycopg.connect(database.url) as connection:
        [answer] = run(connection, kernel_job.claim_many([job], "another"))
        assert answer.running
        connection.rollback()
    assert await claim_next(fp) == [job]


async def test_many_workers_at_once_take_no_token_twice(fp: Fencepost, clock: Clock) -> None:
    await fp.run(kernel_rate.limit_queue("work", Limit(1, 30), "test"))
    await fp.run(kernel_rate.declare({"mail": Limit(1, 10)}))
    jobs = [job for key in "abcde" for job in await submit(fp, 20, key=key)]
    shares = [jobs[place::8] for place in range(8)]
    taken = await asyncio.gather(*(claim(fp, share) for share in shares))
    assert sum(map(len, taken)) == 30


async def test_dispatch_drives_no_more_than_could_start(fp: Fencepost, clock: Clock) -> None:
    await fp.run(kernel_rate.limit_queue("work", Limit(1, 3), "test"))
    await submit(fp, 10)
    async with fp.transaction() as tx:
        due = await tx.run(kernel_job.dispatch("work", 1, 100))
        assert len(due) == 3
        await tx.run(kernel_job.dispatched([job.job_id for job in due], ["1-0", "1-1", "1-2"], "life"))
    async with fp.transaction() as tx:
        assert await tx.run(kernel_job.dispatch("work", 1, 100)) == [], "three are on their way"
    next_due = await fp.run(job_need.next_due("work", Serves({"work": None})))
    assert next_due.pending == pytest.approx(1), "not at once: that would spin"


async def test_a_raised_limit_counts_at_once(fp: Fencepost, clock: Clock) -> None:
    await fp.run(kernel_rate.limit_queue("work", Limit(0.001, 1), "test"))
    jobs = await submit(fp, 5)
    assert await claim_next(fp) == jobs[:1]
    assert await claim_next(fp) == []
    await fp.run(kernel_rate.limit_queue("work", None, "test"))
    assert await claim_next(fp) == jobs[1:]


async def test_what_the_code_no_longer_limits_is_free(database: Database, probes: Probes) -> None:
    before, after = Fencepost(database.url), Fencepost(database.url)

    @before.job("work", rate=Rate(60, per=60, burst=5))
    async def mail(job: Job) -> None: ...

    @after.job("work", kind="mail")
    async def free_mail(job: Job) -> None: ...

    async with before, after:
        await declare(before, before.handlers, before.schedules.declared, "test")
        assert probes.rows("select name, per_second, burst from fencepost.rates") == [("kind:mail", 1, 5)]
        await declare(after, after.handlers, after.schedules.declared, "test")
        assert probes.rows("select name from fencepost.rates") == []


@pytest.mark.parametrize("limit", [Limit(0, 1), Limit(-1, 1), Limit(1, 0.5), Limit(float("nan"), 1)])
async def test_a_rate_that_means_nothing_is_refused(fp: Fencepost, limit: Limit) -> None:
    with pytest.raises(InvalidInput):
        await fp.run(kernel_rate.limit_queue("work", limit, "test"))
    with pytest.raises(InvalidInput):
        await fp.run(kernel_rate.declare({"mail": limit}))


async def test_full_buckets_are_forgotten_and_others_are_not(
    fp: Fencepost, clock: Clock, probes: Probes
) -> None:
    await fp.run(kernel_rate.declare({"mail": Limit(0.01, 1)}))
    await claim(fp, await submit(fp, 1, key="ann"))
    assert await fp.run(kernel_rate.prune(10)) == 0
    clock.advance(99)
    assert await fp.run(kernel_rate.prune(10)) == 0
    clock.advance(1)
    assert await fp.run(kernel_rate.prune(10)) == 1


async def test_a_worker_keeps_the_rate_of_each_key(
    anywhere: Fencepost, probes: Probes, working: Working
) -> None:
    fp = anywhere
    starts: list[tuple[float, str]] = []

    @fp.job("work", rate=Rate(5, burst=1, key="user:{user}"))
    async def mail(job: Job, user: str) -> None:
        starts.append((time.monotonic(), user))

    async with working(fp):
        async with fp.transaction() as tx:
            await mail.submit_many(tx, [{"user": user} for user in "ab" for _ in range(4)])
        await probes.until("all have run", lambda: len(starts) == 8)
    assert Counter(user for _, user in starts) == {"a": 4, "b": 4}
    for user in "ab":
        times = [at for at, who in starts if who == user]
        # The claims are 0.2 s apart on the database's clock; a start follows its claim by some milliseconds.
        assert times[-1] - times[0] > 0.5
    assert probes.value("select max(tries) from fencepost.jobs") == 1


async def test_a_worker_keeps_the_rate_of_a_queue(
    anywhere: Fencepost, probes: Probes, working: Working
) -> None:
    fp = anywhere
    starts: list[float] = []

    @fp.job("work")
    async def mail(job: Job, n: int) -> None:
        starts.append(time.monotonic())

    await fp.run(kernel_rate.limit_queue("work", Limit(10, 1), "test"))
    async with working(fp):
        async with fp.transaction() as tx:
            await mail.submit_many(tx, [{"n": n} for n in range(8)])
        await probes.until("all have run", lambda: len(starts) == 8)
    assert starts[-1] - starts[0] > 0.6
    assert probes.value("select max(tries) from fencepost.jobs") == 1


FREE_OF_CHARGE = """
do $$ begin execute replace(pg_get_functiondef('fencepost._rate_take'::regproc), '- 1,', '- 0,'); end $$
"""


async def test_a_planted_bug_takes_tokens_for_nothing(fp: Fencepost, clock: Clock, probes: Probes) -> None:
    """What the first test sees when a grant does not cost a token."""
    probes.plant(FREE_OF_CHARGE)
    await fp.run(kernel_rate.limit_queue("work", Limit(2, 3), "test"))
    jobs = await submit(fp, 10)
    assert await claim_next(fp, 3) + await claim_next(fp, 3) == jobs[:6]
