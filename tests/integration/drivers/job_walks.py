"""A walk through every call of jobs: the job itself, its outcome, batches, rates, schedules, dead letters."""

from dataclasses import replace
from datetime import timedelta

from fencepost.kernel import _batch as batch
from fencepost.kernel import _job_need as job_need
from fencepost.kernel import _notify as notify
from fencepost.kernel import dead_letter, job, job_queries, lease, rate, schedule, worker
from tests.integration.drivers.walking import AT_ONCE, AWKWARD, DOCUMENT, LONG_AGO, NOBODY, Ask, is_moment


def walk_job(ask: Ask) -> None:
    assert ask(job.next_due("work")) is None
    one = ask(
        job.submit(
            "work",
            "kind",
            DOCUMENT,
            job.SubmitOptions(priority=2, run_at=LONG_AGO, tries=3, lease_seconds=1.5, concurrency_limit=2),
            unique_key=AWKWARD,
            concurrency_key="tenant,1",
            headers={"trace": AWKWARD},
        )
    )
    assert one.created
    several = ask(
        job.submit_many(
            "work",
            "kind",
            [DOCUMENT, "text", [None], {}],
            unique_keys=[AWKWARD, None, 'a"b', "NULL"],
            concurrency_keys=[None, "x{}", None, None],
            headers=[{}, {"trace": AWKWARD}, {}, {}],
        )
    )
    assert [s.created for s in several] == [False, True, True, True]
    assert several[0].job_id == one.job_id
    plain = [
        s.job_id
        for s in ask(job.submit_many("work", "kind", list(range(7)), job.SubmitOptions(lease_seconds=60)))
    ]
    assert is_moment(ask(job.next_due("work")))

    _walk_dispatch(ask, plain)
    running = ask(job.claim(one.job_id, "me"))
    assert (running.payload, running.headers, running.lease_seconds) == (DOCUMENT, {"trace": AWKWARD}, 1.5)
    assert is_moment(running.expires_at)
    _walk_running(ask, running)
    _walk_leaving(ask, [ask(job.claim(job_id, "me", lease_seconds=60)) for job_id in plain[:6]], plain[6])


def _walk_dispatch(ask: Ask, job_ids: list[int]) -> None:
    due = ask(job.dispatch("work", 1, 100))
    assert set(job_ids) <= {d.job_id for d in due}
    assert ask(job.dispatch_by_priority("work", 100))[1] == [d.job_id for d in due]
    assert ask(job.dispatched(job_ids[:2], ["1-0", "1-1"], AWKWARD)) == 2
    driven = ask(job.dispatched_page("work", 1, age_seconds=0))
    assert [(d.job_id, d.entry_id, d.incarnation) for d in driven] == [
        (job_ids[0], "1-0", AWKWARD),
        (job_ids[1], "1-1", AWKWARD),
    ]
    assert [d.job_id for d in ask(job.dispatched_page("work", 1, age_seconds=0, after=driven[0]))] == [
        job_ids[1]
    ]
    assert ask(job.recall(job_ids[:2], ["1-0", "another"])) == 1
    assert ask(job.dispatch_failed(job_ids[2:3], AWKWARD, AT_ONCE)) == 1


def _walk_running(ask: Ask, running: job.Running) -> None:
    renewed = ask(job.renew(running.job_id, running.attempt, "me"))
    assert (renewed.job_id, renewed.cancel_requested, renewed.refusal) == (running.job_id, False, None)
    many = ask(job.renew_many([running.job_id, NOBODY], [running.attempt, 1], "me"))
    assert {r.job_id: r.refusal for r in many} == {running.job_id: None, NOBODY: "not_found"}
    ask(job.progress(running.job_id, running.attempt, "me", DOCUMENT))
    ask(job.fence(running.job_id, running.attempt, "me"))
    ask(job.finish(job.Finish(running.job_id, running.attempt, "accepted", DOCUMENT), "me"))
    answers = ask(
        job.finish_many(
            [job.Finish(running.job_id, running.attempt), job.Finish(NOBODY, 1, "x", DOCUMENT)], "me"
        )
    )
    assert {a.job_id: a.refusal for a in answers} == {
        running.job_id: "already_finished",
        NOBODY: "not_found",
    }


def _walk_leaving(ask: Ask, running: list[job.Running], waiting: int) -> None:
    a, b, c, d, e, f = running
    assert ask(job.release(a.job_id, a.attempt, "me", delay_seconds=3600)) == "pending"
    assert ask(job.retry(b.job_id, b.attempt, "me", AWKWARD, 3600)) == "pending"
    assert ask(job.bury(c.job_id, c.attempt, "me", AWKWARD)) == "dead"
    left = ask(
        job.leave_many(
            [
                job.Leave(d.job_id, d.attempt, "retry", error='a "b", c', delay_seconds=3600),
                job.Leave(e.job_id, e.attempt, "bury", error=AWKWARD),
                job.Leave(f.job_id, f.attempt, "release"),
            ],
            "me",
        )
    )
    assert [x.state for x in left] == ["pending", "dead", "pending"]

    many = ask(job.claim_many([f.job_id, NOBODY], "me", lease_seconds=AT_ONCE))
    assert {x.job_id: (x.outcome, x.refusal) for x in many} == {
        f.job_id: ("claimed", None),
        NOBODY: ("refused", "not_found"),
    }
    assert ask(job.blocked(10)) == []
    assert [(r.job_id, r.owner, r.state) for r in ask(job.reclaim(10))] == [(f.job_id, "me", "pending")]
    claimed = [
        *ask(job.claim_next("work", 1, "you", 1, lease_seconds=60, dispatched=True)),
        *ask(job.claim_by_priority("work", "you", 100, lease_seconds=60, dispatched=True)),
    ]
    assert {waiting, f.job_id} <= {x.job_id for x in claimed}
    assert all(x.running is None or x.running.payload is not None for x in claimed)

    assert ask(job.cancel(waiting, "operator", expected="running")) == "requested"
    ask(job.replay(c.job_id, "operator", expected="dead"))
    ask(job.discard(e.job_id, "operator"))
    assert ask(job.prune(AT_ONCE, 100, dead=True)) == 2


def walk_job_queries(ask: Ask) -> None:
    done, waiting = (s.job_id for s in ask(job.submit_many("outcomes", AWKWARD, [1, 2])))
    running = ask(job.claim(done, "me"))
    ask(job.finish(job.Finish(done, running.attempt, "accepted", DOCUMENT), "me"))

    found = ask(job_queries.look(done))
    assert found is not None
    assert (found.state, found.final_status, found.result) == ("finished", "accepted", DOCUMENT)
    assert ask(job_queries.look(NOBODY)) is None
    assert ask(job_queries.page(queue="outcomes", kind=AWKWARD)) == [waiting, done]
    assert ask(job_queries.page(state="finished", queue="outcomes", before_id=waiting, limit=5)) == [done]
    assert [one.job_id for one in ask(job_queries.found([done, waiting]))] == [waiting, done]
    assert ask(job_queries.waiting_for_time([done, waiting])) == []
    assert ask(job_queries.search_ids(tags=[AWKWARD], queue="outcomes")) == []
    ask(job_queries.hurry(waiting, "operator"))
    ask(notify.sleep_on(job_queries.topic(done)))
    assert ask(job_queries.prune_waiters(AT_ONCE)) == 1
    assert ask(job_queries.prune_excess(0, 100)) >= 1


def walk_job_need(ask: Ask) -> None:
    serves = job_need.Serves({"known": ["n"], AWKWARD: None}, offers=["python"])
    unknown = ask(job.submit("needs", "unknown", {"n": 1})).job_id
    assert [one.outcome for one in ask(job.claim_many([unknown], "me", serves=serves))] == ["set_aside"]
    assert ask(job_need.next_due("needs", serves)) == job_need.NextDue(None, None)
    held = ask(lease.acquire("needs-worker", "me", 60))
    ask(job_need.announce_worker("needs-worker", held.token, ["needs"], serves))
    assert ask(job_need.prune(AT_ONCE, 10)) == 0
    assert ask(job.reserve_suspects(["needs"], serves, "me", 30)) is False
    assert ask(job.claim_suspects(["needs"], serves, "me", 10)) == []
    assert ask(job.reclaim_owner("nobody", "gone")) == []
    due = ask(job.reschedule(unknown, "operator", run_at=None, delay_seconds=60))
    assert is_moment(due)
    assert ask(job.prune_unique(10)) >= 0


def walk_batch(ask: Ask) -> None:
    members = [s.job_id for s in ask(job.submit_many("batches", "kind", [1, 2]))]
    callback = ask(job.submit("batches", "then", {})).job_id
    assert ask(batch.make(members, callback_id=callback, name=AWKWARD)) > 0
    made = ask(batch.make([]))
    assert ask(batch.results(made)) == []
    assert ask(batch.prune(AT_ONCE, 10)) == 1


def walk_rate(ask: Ask) -> None:
    ask(rate.declare({AWKWARD: rate.Limit(0.5, 2), "a,b": None, "c": rate.Limit(3, 1.5)}))
    ask(rate.declare({}))
    ask(rate.limit_queue("slow", rate.Limit(2.5, 10), "operator"))
    ask(rate.limit_queue("slow", None, "operator"))
    assert ask(rate.prune(10)) == 0


def walk_schedule(ask: Ask) -> None:
    now = ask(schedule.clock())
    assert is_moment(now)
    declared = schedule.Declaration(
        name=AWKWARD,
        expression="0 3 * * *",
        zone="Europe/Vienna",
        missed="all",
        grace_seconds=1.5,
        job=job.Submission(
            queue="scheduled",
            kind="kind,with,commas",
            payload=DOCUMENT,
            options=job.SubmitOptions(priority=2, tries=3, lease_seconds=60),
            headers={"from": AWKWARD},
        ),
    )
    ask(schedule.add(declared, now - timedelta(hours=1), "operator"))
    (due,) = ask(schedule.upcoming(10))
    assert (due.name, due.zone, due.grace, due.paused) == (
        AWKWARD,
        "Europe/Vienna",
        timedelta(seconds=1.5),
        False,
    )
    assert due.next_tick == now - timedelta(hours=1)

    ticks = [due.next_tick, due.next_tick + timedelta(minutes=30, microseconds=7)]
    fired = ask(schedule.fire(AWKWARD, due.next_tick, ticks, now + timedelta(hours=1)))
    assert [f.tick for f in fired] == ticks
    assert all(f.created for f in fired)
    ask(schedule.pause(AWKWARD, "operator"))
    ask(schedule.resume(AWKWARD, "operator"))
    by_hand = ask(schedule.run_now(AWKWARD, "operator"))
    assert by_hand.created
    newest, *_ = ask(schedule.history(AWKWARD, None, 10))
    assert (newest.job_id, newest.actor, newest.state) == (by_hand.job_id, "operator", "pending")
    assert is_moment(newest.tick)
    assert [one.tick for one in ask(schedule.history(AWKWARD, now, 10))] == ticks[::-1]
    assert ask(schedule.prune(AT_ONCE, 10)) == 2

    ask(schedule.change(AWKWARD, {"grace": 2.5, "payload": DOCUMENT, "zone": "UTC"}, None, "operator"))
    (found,) = ask(schedule.look(AWKWARD))
    assert (found.name, found.grace, found.payload, found.zone, found.origin, found.state) == (
        AWKWARD,
        timedelta(seconds=2.5),
        DOCUMENT,
        "UTC",
        "run time",
        "active",
    )
    assert ask(schedule.look()) == [found]
    code = {AWKWARD: declared.definition(), "other": declared.definition()}
    changed = ask(schedule.release("r1", code, {"other": now + timedelta(days=1)}, 60, "operator"))
    assert {one.name: one.event for one in changed} == {AWKWARD: "declared", "other": "declared"}
    assert ask(schedule.release("r1", code, {}, 60, "operator")) == []
    assert ask(schedule.look("other"))[0].next_tick == now + timedelta(days=1)
    ask(schedule.reset(AWKWARD, "operator"))
    assert ask(schedule.look(AWKWARD))[0].changes is None
    ask(schedule.revive(AWKWARD, "operator"))
    extra = replace(declared, name="extra")
    ask(schedule.add(extra, now + timedelta(days=1), "operator"))
    ask(schedule.remove("extra", "operator"))
    assert ask(schedule.look("extra")) == []


def walk_dead_letter(ask: Ask) -> None:
    jobs = [s.job_id for s in ask(job.submit_many("dead", AWKWARD, [1, 2]))]
    for job_id in jobs:
        running = ask(job.claim(job_id, "me"))
        ask(job.bury(job_id, running.attempt, "me", "ValueError: no"))

    wanted = dead_letter.Filter(queue="dead", kind=AWKWARD, cause="ValueError", before=ask(schedule.clock()))
    assert ask(dead_letter.count(wanted)) == 2
    assert ask(dead_letter.count(dead_letter.Filter(before=LONG_AGO))) == 0
    assert ask(dead_letter.page(wanted)) == jobs
    assert ask(dead_letter.page(wanted, after_id=jobs[0], limit=1)) == jobs[1:]
    settled = ask(dead_letter.settle([*jobs, NOBODY], "replay", "operator"))
    assert [(s.job_id, s.outcome) for s in settled] == [
        (jobs[0], "replayed"),
        (jobs[1], "replayed"),
        (NOBODY, "not_found"),
    ]


def walk_worker(ask: Ask) -> None:
    assert ask(worker.standing("worker@host:1:ab")) is None
    assert ask(worker.disable("host", AWKWARD, AWKWARD)) == []
    hold = ask(worker.standing("worker@host:1:ab"))
    assert hold is not None
    assert (hold.target, hold.state, hold.reason, hold.actor) == ("host", "disabled", AWKWARD, AWKWARD)
    assert is_moment(hold.held_at)
    assert ask(worker.enable("host", "ann", "mended")) == ["host"]
    ask(lease.acquire("job-worker:1", "worker@host:1:ab", 60))
    assert ask(worker.drain("host", "ann", "a new disk")) == ["worker@host:1:ab"]
    assert ask(worker.pin("host", "ann", AWKWARD, queues=["a,b", 'c"d'], kinds=None, abilities=["x{}"])) == [
        "worker@host:1:ab"
    ]
    (row,) = [row for row in ask(worker.listing()) if row.owner == "worker@host:1:ab"]
    assert (row.state, row.pin_reason) == ("drained", AWKWARD)
    assert sorted(row.pinned_to["queues"]) == ["a,b", 'c"d']
    ask(worker.unpin("host", "ann", "no longer"))
