"""What becomes of the jobs of a lost worker: who is charged a try, who is a suspect, and how suspects run."""

from collections.abc import Callable
from typing import Any

import pytest

from fencepost.testing import Clock
from tests.integration.kernel import job_calls
from tests.integration.kernel.caller import Caller
from tests.integration.kernel.job_calls import OWNER, RIVAL

CLAIM = "select * from fencepost.job_claim_suspects('{mail}', '{send}', %s, %s)"
RESERVE = "select fencepost.job_reserve_suspects('{mail}', '{send}', %s, '30 seconds')"


def lose(app: Caller, clock: Clock) -> list[tuple[str, bool]]:
    """Let every lease end, and put the jobs back: the state of each, and whether its try was charged."""
    clock.advance(61)
    rows = app.rows("select state, charged from fencepost.job_reclaim(1000) order by job_id")
    return [(row["state"], row["charged"]) for row in rows]


def held(app: Caller, count: int, owner: str = OWNER, **terms: Any) -> list[int]:
    return [job_calls.running(app, owner=owner, **terms) for _ in range(count)]


def claim(app: Caller, owner: str, limit: int = 1000) -> list[int]:
    return [row["job_id"] for row in app.rows(CLAIM, owner, limit)]


def tries(app: Caller) -> list[int]:
    return app.column("select tries from fencepost.jobs order by job_id")


def suspects(app: Caller) -> list[int]:
    return app.column("select job_id from fencepost.suspects order by job_id")


def finish(app: Caller, job_ids: list[int], owner: str) -> None:
    attempts = [job_calls.job(app, job_id)["attempt"] for job_id in job_ids]
    assert app.column(
        "select refusal from fencepost.job_finish_many(%s::bigint[], %s::bigint[], %s)",
        job_ids,
        attempts,
        owner,
    ) == [None] * len(job_ids)


def test_a_job_that_was_alone_in_its_worker_is_charged_and_waits_as_any_job(
    app: Caller, clock: Clock
) -> None:
    [job_id] = held(app, 1)
    assert lose(app, clock) == [("pending", True)]
    assert (tries(app), suspects(app)) == ([1], [])
    assert job_calls.claim(app, job_id)["attempt"] == 2


def test_jobs_that_were_lost_together_are_suspects_and_keep_their_count(app: Caller, clock: Clock) -> None:
    lost = held(app, 3, tries_max=1)
    assert lose(app, clock) == [("pending", False)] * 3
    assert (tries(app), suspects(app)) == ([0, 0, 0], lost)
    assert job_calls.job(app, lost[0])["error"] == (
        "its lease expired; it ran beside other jobs, so this try is not charged, "
        "and it runs again apart from other work"
    )


def test_no_ordinary_claim_dispatch_or_hurry_takes_a_suspect(app: Caller, clock: Clock) -> None:
    lost = held(app, 2)
    lose(app, clock)
    answers = job_calls.claim_many(app, lost, RIVAL)
    assert [answers[job_id]["refusal"] for job_id in lost] == ["not_running"] * 2
    assert app.rows("select * from fencepost.job_claim_by_priority('mail', %s, 10)", RIVAL) == []
    assert app.rows("select * from fencepost.job_dispatch('mail', 1, 10)") == []
    app.refused("mismatch", "select fencepost.job_hurry(%s, 'carol')", lost[0])
    assert suspects(app) == lost


def test_a_claim_takes_half_of_a_group_and_then_the_last_one(app: Caller, clock: Clock) -> None:
    lost = held(app, 7)
    lose(app, clock)
    sizes: list[int] = []
    while taken := claim(app, f"spare-{len(sizes)}"):
        sizes.append(len(taken))
    assert sizes == [3, 2, 1, 1]
    assert app.column("select job_id from fencepost.jobs where state = 'running' order by job_id") == lost


def test_a_claim_takes_no_more_than_its_limit(app: Caller, clock: Clock) -> None:
    held(app, 10)
    lose(app, clock)
    assert len(claim(app, "spare", 2)) == 2


def test_a_worker_that_holds_a_job_is_given_no_suspect(app: Caller, clock: Clock) -> None:
    held(app, 2)
    lose(app, clock)
    job_calls.running(app, owner=RIVAL)
    assert claim(app, RIVAL) == []
    assert len(claim(app, "spare")) == 1


def test_suspects_of_two_groups_never_run_together(app: Caller, clock: Clock) -> None:
    first = held(app, 4)
    lose(app, clock)
    second = held(app, 4, RIVAL)
    lose(app, clock)
    assert claim(app, "spare-1") == first[:2]
    assert claim(app, "spare-1") == []
    assert claim(app, "spare-2") == first[2:3]
    assert claim(app, "spare-3") == first[3:]
    assert claim(app, "spare-4") == second[:2]


def test_a_worker_is_given_no_suspect_of_a_kind_or_queue_that_it_does_not_serve(
    app: Caller, clock: Clock
) -> None:
    held(app, 2)
    lose(app, clock)
    other = "select * from fencepost.job_claim_suspects(%s, %s, 'spare', 10)"
    assert app.rows(other, ["mail"], ["other"]) == []
    assert app.rows(other, ["other"], ["send"]) == []
    app.execute("select fencepost.queue_pause('mail', 'carol')")
    assert app.rows(other, ["mail"], ["send"]) == []
    app.execute("select fencepost.queue_resume('mail', 'carol')")
    assert len(app.rows(other, ["mail"], ["send"])) == 1


def test_the_group_that_is_lost_again_splits_until_one_is_alone_and_charged(
    app: Caller, clock: Clock
) -> None:
    """Every worker that runs the last job is lost: only that job is charged, and dies in its last try."""
    lost = held(app, 8, tries_max=2)
    poison = lost[-1]
    lose(app, clock)
    crashes = 0
    while taken := claim(app, f"spare-{clock.now()}"):
        if poison in taken:
            crashes += 1
            lose(app, clock)
        else:
            finish(app, taken, f"spare-{clock.now()}")
            clock.advance(1)
    assert crashes == 2
    seen = {job_id: job_calls.job(app, job_id) for job_id in lost}
    assert {job["state"] for job_id, job in seen.items() if job_id != poison} == {"finished"}
    assert (seen[poison]["state"], seen[poison]["final_status"], seen[poison]["tries"]) == (
        "dead",
        "worker_lost",
        2,
    )
    assert seen[poison]["error"] == "its lease expired while it ran alone in its worker, in its last try"
    assert suspects(app) == []


def test_a_poison_in_the_first_half_is_found_in_as_many_losses_as_halves(app: Caller, clock: Clock) -> None:
    lost = held(app, 8, tries_max=1)
    lose(app, clock)
    for size, state in ((4, ("pending", False)), (2, ("pending", False)), (1, ("dead", True))):
        # The first group that waits is the oldest: the innocent ones of it run before the half that was lost.
        while lost[0] not in (taken := claim(app, owner := f"spare-{clock.now()}")):
            finish(app, taken, owner)
            clock.advance(1)
        assert (len(taken), lose(app, clock)) == (size, [state] * size)


def test_a_suspect_that_was_charged_is_not_claimed_beside_others(app: Caller, clock: Clock) -> None:
    first, second = held(app, 2)
    lose(app, clock)
    assert claim(app, "spare-1") == [first]
    assert lose(app, clock) == [("pending", True)]
    assert claim(app, "spare-2") == [second]
    assert claim(app, "spare-3") == [first]
    assert tries(app) == [2, 1]


@pytest.mark.parametrize(
    ("how", "delay", "cleared"),
    [("retry", "0", True), ("bury", "0", True), ("release", "5 seconds", True), ("release", "0", False)],
)
def test_a_suspect_that_leaves_its_worker_alive_is_cleared(
    app: Caller, clock: Clock, how: str, delay: str, cleared: bool
) -> None:
    """A release without a delay is a shutdown, which proves nothing."""
    first, second = held(app, 2)
    lose(app, clock)
    claim(app, "spare")
    app.rows(
        "select * from fencepost.job_leave_many(%s, '{2}', 'spare', %s, '{no}', %s::interval[])",
        [first],
        [how],
        [delay],
    )
    assert suspects(app) == ([second] if cleared else [first, second])
    events = app.column("select event from fencepost.explain(%s)", f"job:{first}")
    assert ("cleared" in events) == cleared
    if not cleared:
        assert claim(app, "spare-2") == [first]
        assert job_calls.job(app, first)["tries"] == 1


def test_a_cancelled_suspect_leaves_the_group_without_being_cleared(app: Caller, clock: Clock) -> None:
    first, second = held(app, 2)
    lose(app, clock)
    assert app.value("select fencepost.job_cancel(%s, 'carol')", first) == "cancelled"
    claim(app, "spare")
    app.execute("select fencepost.job_cancel(%s, 'carol')", second)
    assert lose(app, clock) == [("cancelled", True)]
    assert suspects(app) == []
    for job_id in (first, second):
        assert "cleared" not in app.column("select event from fencepost.explain(%s)", f"job:{job_id}")


def test_jobs_whose_leases_end_at_different_times_are_one_group(app: Caller, clock: Clock) -> None:
    """The last of them is not taken for one that was alone, though the others have finished by then."""
    short = [job_calls.submit(app, lease="10 seconds") for _ in range(2)]
    long = job_calls.submit(app, lease="60 seconds")
    job_calls.claim_many(app, [*short, long])
    clock.advance(11)
    assert app.column("select charged from fencepost.job_reclaim(10)") == [False, False]
    for owner in ("spare-1", "spare-2"):
        finish(app, claim(app, owner), owner)
    assert lose(app, clock) == [("pending", False)]


def test_a_job_that_the_same_owner_claims_after_a_loss_is_not_of_that_loss(app: Caller, clock: Clock) -> None:
    held(app, 2)
    lose(app, clock)
    clock.advance(1)
    job_calls.running(app)
    assert lose(app, clock) == [("pending", True)]


def test_a_machine_that_fails_charges_nobody_until_the_bound(
    app: Caller, admin: Caller, clock: Clock
) -> None:
    """Jobs that are lost beside others again and again, which a worker does not do, end after the bound."""
    held(app, 2, tries_max=2)
    charged: list[set[bool]] = []
    for _ in range(22):
        charged.append({was for _, was in lose(app, clock)})
        admin.execute("update fencepost.job_waiting set run_at = fencepost.clock()")
        app.rows("select * from fencepost.job_claim_by_priority('mail', %s, 10)", OWNER)
    assert charged == [{False}] * 20 + [{True}] * 2
    assert app.column("select state from fencepost.jobs") == ["dead", "dead"]
    assert set(app.column("select error from fencepost.jobs")) == {
        "its lease expired after 20 losses together with other jobs, which were not charged, in its last try"
    }


def test_a_takeover_of_a_job_that_was_not_alone_makes_a_suspect_of_it(app: Caller, clock: Clock) -> None:
    lost = held(app, 2)
    clock.advance(61)
    answers = job_calls.claim_many(app, lost, RIVAL)
    assert [answers[job_id]["refusal"] for job_id in lost] == ["not_running"] * 2
    assert (suspects(app), tries(app)) == (lost, [0, 0])


def test_the_jobs_of_a_process_that_was_seen_to_end_come_back_at_once(app: Caller, clock: Clock) -> None:
    reclaim = "select * from fencepost.job_reclaim_owner(%s, 'its process was killed by SIGKILL')"
    lost = held(app, 2, tries_max=1)
    other = held(app, 1, RIVAL)
    clock.advance(1)
    assert [row["charged"] for row in app.rows(reclaim, OWNER)] == [False, False]
    assert job_calls.state(app, other[0]) == "running"
    claim(app, "spare")
    clock.advance(1)
    [row] = app.rows(reclaim, "spare")
    assert (row["job_id"], row["state"], row["charged"]) == (lost[0], "dead", True)
    assert job_calls.job(app, lost[0])["error"] == (
        "its process was killed by SIGKILL while it ran alone in its worker, in its last try"
    )
    app.refused("already_finished", "select fencepost.job_finish(%s, 2, 'spare')", lost[0])


def test_a_job_with_an_open_fence_is_not_taken_from_a_process_that_was_seen_to_end(
    app: Caller, connect: Callable[[], Caller], clock: Clock
) -> None:
    fenced, free = held(app, 2)
    holder = connect()
    holder.execute("begin")
    holder.execute("select fencepost.job_fence(%s, 1, %s)", fenced, OWNER)
    clock.advance(1)
    rows = app.rows("select * from fencepost.job_reclaim_owner(%s, 'gone')", OWNER)
    assert [(row["job_id"], row["charged"]) for row in rows] == [(free, False)]
    holder.execute("rollback")
    assert lose(app, clock) == [("pending", False)]


def test_a_suspect_whose_concurrency_key_is_busy_waits_as_a_suspect(app: Caller, clock: Clock) -> None:
    keyed, free = job_calls.submit_keyed(app, "user:7", 1), job_calls.submit(app)
    job_calls.claim_many(app, [keyed, free])
    lose(app, clock)
    taken = job_calls.submit_keyed(app, "user:7", 1)
    job_calls.claim(app, taken, RIVAL)
    assert claim(app, "spare-1") == []
    finish(app, [taken], RIVAL)
    assert claim(app, "spare-1") == [keyed]
    assert claim(app, "spare-2") == [free]


def test_one_worker_at_a_time_reserves_a_group(app: Caller, clock: Clock) -> None:
    assert app.value(RESERVE, "a") is False
    held(app, 2)
    lose(app, clock)
    assert [app.value(RESERVE, owner) for owner in ("a", "b", "a")] == [True, False, True]
    clock.advance(31)
    assert [app.value(RESERVE, owner) for owner in ("b", "a")] == [True, False]
    for owner in ("spare-1", "spare-2"):
        claim(app, owner)
    assert app.value(RESERVE, "b") is False


def test_groups_without_members_are_deleted_after_a_day(app: Caller, admin: Caller, clock: Clock) -> None:
    held(app, 2)
    lose(app, clock)
    for owner in ("spare-1", "spare-2"):
        finish(app, claim(app, owner), owner)
    clock.advance(90_000)
    kept = held(app, 2, RIVAL)
    lose(app, clock)
    assert suspects(app) == kept
    assert admin.value("select count(*) from fencepost.job_suspicion") == 1


def test_the_history_of_a_suspect_tells_what_happened_in_plain_words(app: Caller, clock: Clock) -> None:
    first, _ = held(app, 2)
    lose(app, clock)
    told = app.rows("select event, detail from fencepost.explain(%s)", f"job:{first}")
    assert [row["event"] for row in told] == ["submitted", "lost", "suspect"]
    assert told[1]["detail"]["charged"] is False
    assert told[2]["detail"] == {
        "tries": 0,
        "losses": 1,
        "beside": 1,
        "lost_owner": OWNER,
        "why": "its worker was lost with other jobs; it runs again in a worker that holds none but suspects",
    }


def live_through(app: Caller, clock: Clock, jobs: int, poison: int) -> None:
    """A worker holds ten jobs at a time. Every worker that holds the poison is lost, until all has ended."""
    job_ids = [job_calls.submit(app) for _ in range(jobs)]
    killer = job_ids[poison]
    for life in range(10 * jobs):
        owner = f"worker-{life}"
        taken = claim(app, owner) or app.column(
            "select job_id from fencepost.job_claim_by_priority('mail', %s, 10)", owner
        )
        if not taken:
            break
        if killer in taken:
            lose(app, clock)
        else:
            finish(app, taken, owner)
            clock.advance(1)
    ends = {
        job_id: (job["state"], job["tries"]) for job_id in job_ids for job in [job_calls.job(app, job_id)]
    }
    assert ends.pop(killer) == ("dead", 3)
    assert set(ends.values()) == {("finished", 1)}
    # With the others, in three halves, and three times alone.
    assert app.column("select event from fencepost.explain(%s)", f"job:{killer}").count("lost") <= 7


BUGS = {
    "every lost job is charged": (
        "_suspicion_of",
        "charged := suspicion_id is null or",
        "charged := true or",
    ),
    "a group is never split": ("job_claim_suspects", "v_group.size / 2", "v_group.size"),
    "a job that was alone is not charged": (
        "_suspicion_of",
        "charged := suspicion_id is null or",
        "charged :=",
    ),
    "a suspect is claimed as any job": ("_suspect_put_back", "fencepost._batch_never()", "p_now"),
}


@pytest.mark.parametrize("poison", [0, 4, 23])
def test_one_poison_among_many_dies_and_no_other_is_charged(app: Caller, clock: Clock, poison: int) -> None:
    live_through(app, clock, 24, poison)


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_seen_by_that(app: Caller, admin: Caller, clock: Clock, bug: str) -> None:
    name, right, wrong = BUGS[bug]
    definition: str = admin.value(
        "select pg_get_functiondef(p.oid) from pg_proc p where p.proname = %s", name
    )
    assert right in definition
    admin.connection.execute(definition.replace(right, wrong).encode())
    with pytest.raises(AssertionError):
        live_through(app, clock, 24, 4)
