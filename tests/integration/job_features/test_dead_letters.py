"""Dead letters: by cause, replayed and discarded, one and many, with who did it."""

import asyncio
from collections.abc import Iterator

import pytest

from fencepost import AlreadyFinished, Fencepost, Job, Mismatch, PermanentError, SyncFencepost
from fencepost.embedded import Database
from fencepost.jobs.dead_letters import settle_all
from fencepost.kernel import dead_letter, job_queries
from fencepost.kernel import job as kernel_job
from fencepost.kernel.dead_letter import Filter
from fencepost.testing import Clock
from tests.integration.job_features.conftest import Working
from tests.integration.job_features.probes import Probes

OWNER = "worker"


@pytest.fixture
def sync_fp(database: Database) -> Iterator[SyncFencepost]:
    with Fencepost(database.url).sync() as fp:
        yield fp


def die(
    fp: SyncFencepost, error: str, *, queue: str = "work", kind: str = "one", count: int = 1
) -> list[int]:
    jobs = fp.run(kernel_job.submit_many(queue, kind, [None] * count))
    answers = fp.run(kernel_job.claim_many([job.job_id for job in jobs], OWNER))
    running = [answer.running for answer in answers if answer.running]
    fp.run(
        kernel_job.leave_many([kernel_job.Leave(r.job_id, r.attempt, "bury", error) for r in running], OWNER)
    )
    return [job.job_id for job in jobs]


def test_dead_letters_are_grouped_by_queue_kind_and_cause(
    sync_fp: SyncFencepost, probes: Probes, clock: Clock
) -> None:
    die(sync_fp, "ValueError: page 1", count=2)
    die(sync_fp, "ValueError: page 2")
    die(sync_fp, "smtplib.SMTPException: no", kind="mail")
    die(sync_fp, "no colon here", queue="other")
    [lost] = [
        job.job_id
        for job in sync_fp.run(
            kernel_job.submit_many("work", "one", [None], kernel_job.SubmitOptions(tries=1))
        )
    ]
    sync_fp.run(kernel_job.claim(lost, OWNER))
    clock.advance(3600)
    sync_fp.run(kernel_job.reclaim(10))
    causes = "select queue, kind, cause, jobs from fencepost.dead_causes order by 1, 2, 3"
    assert probes.rows(causes) == [
        ("other", "one", "failed", 1),
        ("work", "mail", "smtplib.SMTPException", 1),
        ("work", "one", "ValueError", 3),
        ("work", "one", "worker_lost", 1),
    ]
    newest = "select newest_error from fencepost.dead_causes where cause = 'ValueError'"
    assert probes.value(newest) == "ValueError: page 2"


def test_a_filter_means_those_and_no_others(sync_fp: SyncFencepost, probes: Probes) -> None:
    values = die(sync_fp, "ValueError: no", count=3)
    keys = die(sync_fp, "KeyError: no", count=2)
    others = die(sync_fp, "ValueError: no", queue="other")
    for wanted, meant in (
        (Filter(), [*values, *keys, *others]),
        (Filter(queue="work"), [*values, *keys]),
        (Filter(cause="ValueError"), [*values, *others]),
        (Filter(queue="work", kind="one", cause="KeyError"), keys),
        (Filter(kind="none"), []),
    ):
        assert sync_fp.run(dead_letter.page(wanted)) == meant
        assert sync_fp.run(dead_letter.count(wanted)) == len(meant)
    assert sync_fp.run(dead_letter.page(Filter(), after_id=values[1], limit=2)) == [values[2], keys[0]]


def test_a_replay_by_filter_is_throttled_and_audited(sync_fp: SyncFencepost, probes: Probes) -> None:
    jobs = die(sync_fp, "ValueError: no", count=25)
    spared = die(sync_fp, "KeyError: no")
    pauses: list[float] = []
    batches = settle_all(
        sync_fp.run,
        Filter(cause="ValueError"),
        "replay",
        "alice",
        per_second=10,
        clock=lambda: 0.0,
        pause=pauses.append,
    )
    settled = [one for batch in batches for one in batch]
    assert [(one.job_id, one.outcome) for one in settled] == [(job, "replayed") for job in jobs]
    assert pauses == [1.0, 1.0], "ten at a time, a second for each ten, none after the last"
    assert [event for event in probes.events("job", jobs[0]) if event[0] == "replayed"] == [
        ("replayed", "alice")
    ]
    assert {probes.state(job) for job in jobs} == {"pending"}
    assert probes.state(spared[0]) == "dead"


def test_a_repeated_replay_leaves_alone_what_died_again(
    sync_fp: SyncFencepost, probes: Probes, clock: Clock
) -> None:
    jobs = die(sync_fp, "ValueError: no", count=3)
    wanted = Filter(before=clock.now())
    clock.advance(60)

    def replay() -> list[int]:
        batches = settle_all(sync_fp.run, wanted, "replay", "alice", per_second=100)
        return [one.job_id for batch in batches for one in batch]

    assert replay() == jobs
    running = sync_fp.run(kernel_job.claim(jobs[0], OWNER))
    sync_fp.run(kernel_job.bury(running.job_id, running.attempt, OWNER, "ValueError: again"))
    assert replay() == [], "it died after the moment that was meant"
    assert probes.state(jobs[0]) == "dead"


def test_two_replays_at_once_replay_each_job_once(sync_fp: SyncFencepost, probes: Probes) -> None:
    jobs = die(sync_fp, "ValueError: no", count=50)

    async def both() -> list[list[dead_letter.Settled]]:
        calls = [dead_letter.settle(jobs, "replay", actor) for actor in ("alice", "bob")]
        return await asyncio.gather(*(asyncio.to_thread(sync_fp.run, call) for call in calls))

    outcomes = [one.outcome for settled in asyncio.run(both()) for one in settled]
    assert outcomes.count("replayed") == 50
    assert probes.value("select count(*) from fencepost.events where event = 'replayed'") == 50


def test_one_that_cannot_be_replayed_does_not_hold_up_the_others(
    sync_fp: SyncFencepost, probes: Probes
) -> None:
    unique = sync_fp.run(kernel_job.submit("work", "one", {}, unique_key="k"))
    running = sync_fp.run(kernel_job.claim(unique.job_id, OWNER))
    sync_fp.run(kernel_job.bury(running.job_id, running.attempt, OWNER, "ValueError: no"))
    sync_fp.run(kernel_job.submit("work", "one", {}, unique_key="k"))
    [other] = die(sync_fp, "ValueError: no")
    settled = sync_fp.run(dead_letter.settle([unique.job_id, other, 999_999], "replay", "alice"))
    assert [one.outcome for one in settled] == ["duplicate", "replayed", "not_found"]
    assert probes.state(unique.job_id) == "dead"
    recorded = "select reason, subject, actor from fencepost.refusals order by refusal_id"
    assert probes.rows(recorded) == [
        ("duplicate", str(unique.job_id), "alice"),
        ("not_found", "999999", "alice"),
    ]


def test_a_discarded_job_leaves_the_dead_letters_with_the_name_of_the_actor(
    sync_fp: SyncFencepost, probes: Probes
) -> None:
    [job] = die(sync_fp, "ValueError: no")
    [settled] = sync_fp.run(dead_letter.settle([job], "discard", "bob"))
    assert settled.outcome == "discarded"
    assert probes.rows("select job_id from fencepost.dead_letters") == []
    assert probes.events("job", job)[-1] == ("discarded", "bob")
    assert sync_fp.run(dead_letter.settle([job], "discard", "bob"))[0].outcome == "cancelled"


def test_a_page_of_jobs_is_driven_by_its_state(sync_fp: SyncFencepost, clock: Clock) -> None:
    dead = die(sync_fp, "ValueError: no", count=2)
    mails = [j.job_id for j in sync_fp.run(kernel_job.submit_many("mail", "send", [None] * 3))]
    running = sync_fp.run(kernel_job.claim(mails[0], OWNER))
    assert sync_fp.run(job_queries.page()) == [*reversed(mails), *reversed(dead)]
    assert sync_fp.run(job_queries.page(limit=2)) == [mails[2], mails[1]]
    assert sync_fp.run(job_queries.page(before_id=mails[1], limit=2)) == [mails[0], dead[1]]
    assert sync_fp.run(job_queries.page(state="pending")) == [mails[2], mails[1]]
    assert sync_fp.run(job_queries.page(state="running", kind="send")) == [mails[0]]
    assert sync_fp.run(job_queries.page(state="dead", queue="work")) == [*reversed(dead)]
    assert sync_fp.run(job_queries.page(state="dead", kind="send")) == []
    sync_fp.run(kernel_job.finish(kernel_job.Finish(running.job_id, running.attempt), OWNER))
    assert sync_fp.run(job_queries.page(state="finished")) == [mails[0]]


def test_a_waiting_job_can_be_hurried_and_no_other(sync_fp: SyncFencepost, probes: Probes) -> None:
    job = sync_fp.run(kernel_job.submit("work", "one", {}, kernel_job.SubmitOptions(delay_seconds=3600)))
    sync_fp.run(job_queries.hurry(job.job_id, "alice"))
    running = sync_fp.run(kernel_job.claim(job.job_id, OWNER))
    assert probes.events("job", job.job_id) == [("hurried", "alice")]
    with pytest.raises(Mismatch):
        sync_fp.run(job_queries.hurry(job.job_id, "alice"))
    sync_fp.run(kernel_job.finish(kernel_job.Finish(running.job_id, running.attempt), OWNER))
    with pytest.raises(AlreadyFinished):
        sync_fp.run(job_queries.hurry(job.job_id, "alice"))


async def test_a_replayed_job_runs_when_its_cause_is_gone(
    fp: Fencepost, probes: Probes, working: Working
) -> None:
    mended = False

    @fp.job("work")
    async def one(job: Job) -> str:
        if not mended:
            raise PermanentError("not yet")
        return "done"

    async with working(fp):
        async with fp.transaction() as tx:
            job = await one.submit(tx)
        await probes.until_state(job.job_id, "dead")
        mended = True
        await fp.run(dead_letter.settle([job.job_id], "replay", "alice"))
        await probes.until_state(job.job_id, "finished")
        assert await fp.jobs.result(job) == "done"
