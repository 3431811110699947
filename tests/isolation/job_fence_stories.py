"""A worker that fences, writes and finishes in one transaction, and everything that can come between."""

from collections.abc import Iterator
from dataclasses import dataclass

from tests.isolation.job_calls import CLAIMED, SUBMIT
from tests.isolation.scenario import COMMIT, ROLLBACK, Run, Scenario, Session, Step

STATE = """
select state || ' ' || attempt || coalesce(' by ' || owner, '')
  || case when cancel_requested_at is not null then ', asked to stop' else '' end
from fencepost.jobs
union all select 'written by ' || writer from isolation.effect
"""
RUNNING = (SUBMIT, CLAIMED)

FENCE = Step("fence", "select fencepost.job_fence(1, 1, 'a')")
FENCE_ALL = Step("fence", "select fencepost.job_fence_all(array[1], array[1], 'a')")
WRITE = Step("write", "insert into isolation.effect values ('a') returning 'written'")
FINISH = Step("finish", "select fencepost.job_finish(1, 1, 'a')")
SAVEPOINT = Step("savepoint", "savepoint s")
UNDO = Step("undo", "rollback to s")
LATER = Step("later", "select isolation.at(3601)")
CLAIM = Step("take", "select 'attempt ' || attempt from fencepost.job_claim(1, 'b')")
RECLAIM = Step("take", "select state from fencepost.job_reclaim(10)")
RECLAIM_ONE = Step("take", "select fencepost.job_reclaim_one(1)")
CANCEL = Step("cancel", "select fencepost.job_cancel(1, 'anna')")
RELEASE = Step("release", "select fencepost.job_release(1, 1, 'a')")
RENEW = "select 'renewed' from fencepost.job_renew(1, 1, 'a')"

TIME = Session("time", (LATER,), begin=None)

FINISHED = "refused: already_finished"
NOT_RUNNING = "refused: not_running"
CANCELLED = "refused: cancelled"
NOT_OWNER = "refused: not_owner"
LATE = "refused: lease_expired"


@dataclass(frozen=True)
class Taker:
    """One way to take a lost job: what it answers when it gets it, and when it does not."""

    step: Step
    takes: str
    leaves: str
    in_vain: str
    when_finished: str
    # What the fence of the old owner is told afterwards.
    fence_after: str
    # Whether it waits for an open fence or finish; otherwise it passes the job over.
    waits: bool = False

    def judge(self, run: Run) -> Iterator[str]:
        yield from self._judge_take(run, shield="a.fence")
        taken = run["b.take"].answer == self.takes
        yield from _judge_fence(run, taken=taken, after=self.fence_after)
        fenced = run["a.fence"].answer == "done"
        yield from run.expect("a.write", "written" if fenced else "aborted")
        yield from run.expect("a.finish", "done" if fenced else "aborted", waits=False)
        finished = (
            ("finished 1 by a", "written by a") if fenced and run.committed("a") else ("running 1 by a",)
        )
        yield from run.expect_state(*((self.leaves,) if taken else finished))

    def judge_without_fence(self, run: Run) -> Iterator[str]:
        """A bare finish is judged by the clock at its moment, and keeps takers out from then on."""
        yield from self._judge_take(run, shield="a.finish")
        taken = run["b.take"].answer == self.takes
        if not run.before("time.later", "a.finish"):
            yield from run.expect("a.finish", "done", waits=False)
        else:
            told = taken and run.before("b.commit", "a.finish")
            yield from run.expect("a.finish", self.fence_after if told else LATE, waits=False)
        finished = run["a.finish"].answer == "done" and run.committed("a")
        yield from run.expect_state(
            self.leaves if taken else "finished 1 by a" if finished else "running 1 by a"
        )

    def _judge_take(self, run: Run, *, shield: str) -> Iterator[str]:
        """`shield` is the step that keeps takers out until its transaction ends."""
        shielded, take = run[shield].answer == "done", run["b.take"]
        meets_the_shield = shielded and run.between("b.take", shield, "a")
        if shielded and run.committed("a") and run["a.commit"].ended < take.ended:
            answer = self.when_finished
        elif meets_the_shield and not self.waits:
            answer = self.in_vain
        else:
            answer = self.takes if run["time.later"].ended < take.ended else self.in_vain
        yield from run.expect("b.take", answer, waits=meets_the_shield and self.waits)


def _judge_fence(run: Run, *, taken: bool, after: str) -> Iterator[str]:
    """Before the expiry it is granted; after it the reason is what the taker has made of the job."""
    if not run.before("time.later", "a.fence"):
        yield from run.expect("a.fence", "done", waits=False)
    elif taken and run["b.take"].started < run["a.fence"].started:
        yield from run.expect("a.fence", after, waits=run.open_at("b", "a.fence"))
    else:
        yield from run.expect("a.fence", LATE, waits=False)


BY_RECLAIM = Taker(RECLAIM, "pending", "pending 1", "nothing", "nothing", NOT_RUNNING)
BY_CLAIM = Taker(CLAIM, "attempt 2", "running 2 by b", NOT_OWNER, FINISHED, "refused: stale_attempt")
BY_RECLAIM_ONE = Taker(RECLAIM_ONE, "pending", "pending 1", NOT_OWNER, FINISHED, NOT_RUNNING, waits=True)


def a_fence_that_was_passed_wins_over_a_cancel(run: Run) -> Iterator[str]:
    asked_first = run["b.cancel"].started < run["a.fence"].started
    fenced = not (asked_first and run.before("b.commit", "a.fence"))
    yield from run.expect("a.fence", "done" if fenced else CANCELLED, waits=False)
    finish_waits = fenced and run.between("a.finish", "b.cancel", "b")
    yield from run.expect("a.finish", "done" if fenced else "aborted", waits=finish_waits)
    too_late = fenced and run["a.finish"].started < run["b.cancel"].started
    cancel_waits = too_late and run.between("b.cancel", "a.finish", "a")
    yield from run.expect("b.cancel", FINISHED if too_late else "requested", waits=cancel_waits)
    yield from run.expect_state("finished 1 by a" if fenced else "running 1 by a, asked to stop")


def a_heartbeat_passes_the_fence_and_never_waits(run: Run) -> Iterator[str]:
    yield from run.expect("a.fence", "done", waits=False)
    yield from run.expect("a.finish", "done", waits=False)
    for renewal in ("heart.renew", "heart.renew again"):
        if run.before("a.commit", renewal):
            answer = FINISHED
        else:
            answer = "refused: in_flight" if run.before("a.finish", renewal) else "renewed"
        yield from run.expect(renewal, answer, waits=False)
    yield from run.expect_state("finished 1 by a")


def a_release_waits_for_the_finish(run: Run) -> Iterator[str]:
    released_first = run["b.release"].started < run["a.fence"].started
    if released_first:
        yield from run.expect("b.release", "pending", waits=False)
        yield from run.expect("a.fence", NOT_RUNNING, waits=run.open_at("b", "a.fence"))
        yield from run.expect_state("pending 1")
    else:
        yield from run.expect("a.fence", "done", waits=False)
        yield from run.expect("a.finish", "done", waits=False)
        yield from run.expect("b.release", FINISHED, waits=run.between("b.release", "a.fence", "a"))
        yield from run.expect_state("finished 1 by a")


def an_undone_fence_is_no_fence(run: Run) -> Iterator[str]:
    """The finish is judged by the clock again, and a reclaim passes when the savepoint is rolled back."""
    take, fenced = run["b.take"], run["a.fence"].answer == "done"
    inside = fenced and run["a.fence"].ended < take.started < run["a.undo"].ended
    kept = run["a.finish"].answer == "done" and run["a.finish"].ended < take.started
    taken = run.before("time.later", "b.take") and not inside and not kept
    yield from run.expect("b.take", "pending" if taken else "nothing", waits=False)
    yield from _judge_fence(run, taken=taken, after=NOT_RUNNING)
    if not run.before("time.later", "a.finish"):
        yield from run.expect("a.finish", "done", waits=False)
    elif taken and run.before("b.commit", "a.finish"):
        yield from run.expect("a.finish", NOT_RUNNING, waits=False)
    else:
        yield from run.expect("a.finish", LATE, waits=False)
    finished = run["a.finish"].answer == "done"
    yield from run.expect_state("finished 1 by a" if finished else "pending 1" if taken else "running 1 by a")


def a_renewal_that_commits_keeps_the_job(run: Run) -> Iterator[str]:
    """They begin at 0:30, and later it is 1:10: unrenewed, the lease ends at 1:00, renewed at 1:30."""
    expired = run.before("time.later", "b.take")
    if not run.before("time.later", "a.renew"):
        yield from run.expect("a.renew", "renewed", waits=False)
        kept = run["a.renew"].started < run["b.take"].started
        kept = kept and (run.committed("a") or run.open_at("a", "b.take"))
        taken = expired and not kept
    else:
        taken = expired
        told = taken and run.before("b.commit", "a.renew")
        yield from run.expect("a.renew", NOT_RUNNING if told else LATE, waits=False)
    yield from run.expect("b.take", "pending" if taken else "nothing", waits=False)
    yield from run.expect_state("pending 1" if taken else "running 1 by a")


def two_takers_and_one_fence(run: Run) -> Iterator[str]:
    """A claim and a reclaim do not wait: the first after the expiry and the fence has the job."""
    may_claim, may_reclaim = run.before("a.rollback", "b.claim"), run.before("a.rollback", "c.reclaim")
    claim_first = may_claim and run["b.claim"].started < run["c.reclaim"].started
    reclaimed = may_reclaim and not claim_first
    claimed = may_claim and not (reclaimed and run.between("b.claim", "c.reclaim", "c"))
    yield from run.expect("a.fence", "done", waits=False)
    yield from run.expect("b.claim", "attempt 2" if claimed else NOT_OWNER, waits=False)
    yield from run.expect("c.reclaim", "pending" if reclaimed else "nothing", waits=False)
    yield from run.expect_state(
        "running 2 by b" if claimed else "pending 1" if reclaimed else "running 1 by a"
    )


def _bare(title: str, taker: Taker, end: Step) -> Scenario:
    worker = Session("a", (FINISH, end))
    taking = Session("b", (taker.step, COMMIT))
    return Scenario(title, RUNNING, (worker, taking, TIME), STATE, taker.judge_without_fence)


def _renewal(title: str, end: Step) -> Scenario:
    heart = Session("a", (Step("renew", RENEW), end))
    time = Session("time", (Step("later", "select isolation.at(4200)"),), begin=None)
    sessions = (heart, Session("b", (RECLAIM, COMMIT)), time)
    given = (*RUNNING, "select isolation.at(1800)")
    return Scenario(title, given, sessions, STATE, a_renewal_that_commits_keeps_the_job)


def _against(title: str, taker: Taker, end: Step, fence: Step = FENCE) -> Scenario:
    worker = Session("a", (fence, WRITE, FINISH, end))
    return Scenario(title, RUNNING, (worker, Session("b", (taker.step, COMMIT)), TIME), STATE, taker.judge)


STORIES = (
    _against("a fenced finish and a reclaim", BY_RECLAIM, COMMIT),
    _against("a fenced finish that rolls back and a reclaim", BY_RECLAIM, ROLLBACK),
    _against("a fenced finish and a takeover", BY_CLAIM, COMMIT),
    _against("a fenced finish that rolls back and a takeover", BY_CLAIM, ROLLBACK),
    _against("a fenced finish and a reclaim that waits", BY_RECLAIM_ONE, COMMIT),
    _against("a fenced finish that rolls back and a reclaim that waits", BY_RECLAIM_ONE, ROLLBACK),
    _against("a finish fenced with others and a reclaim", BY_RECLAIM, COMMIT, FENCE_ALL),
    _against("a finish fenced with others and a takeover", BY_CLAIM, COMMIT, FENCE_ALL),
    _bare("a bare finish and a reclaim", BY_RECLAIM, COMMIT),
    _bare("a bare finish that rolls back and a reclaim", BY_RECLAIM, ROLLBACK),
    _bare("a bare finish and a takeover", BY_CLAIM, COMMIT),
    _bare("a bare finish that rolls back and a takeover", BY_CLAIM, ROLLBACK),
    _bare("a bare finish and a reclaim that waits", BY_RECLAIM_ONE, COMMIT),
    _renewal("a renewal that commits keeps the job", COMMIT),
    _renewal("a renewal that rolls back loses the job", ROLLBACK),
    Scenario(
        "a fenced finish and a cancel",
        RUNNING,
        (Session("a", (FENCE, FINISH, COMMIT)), Session("b", (CANCEL, COMMIT))),
        STATE,
        a_fence_that_was_passed_wins_over_a_cancel,
    ),
    Scenario(
        "a finish fenced with others and a cancel",
        RUNNING,
        (Session("a", (FENCE_ALL, FINISH, COMMIT)), Session("b", (CANCEL, COMMIT))),
        STATE,
        a_fence_that_was_passed_wins_over_a_cancel,
    ),
    Scenario(
        "a fenced finish and two heartbeats",
        RUNNING,
        (
            Session("a", (FENCE, FINISH, COMMIT)),
            Session("heart", (Step("renew", RENEW), Step("renew again", RENEW)), begin=None),
        ),
        STATE,
        a_heartbeat_passes_the_fence_and_never_waits,
    ),
    Scenario(
        "a fenced finish and a release",
        RUNNING,
        (Session("a", (FENCE, FINISH, COMMIT)), Session("b", (RELEASE, COMMIT))),
        STATE,
        a_release_waits_for_the_finish,
    ),
    Scenario(
        "a fence inside a savepoint that is rolled back, and a finish",
        RUNNING,
        (Session("a", (SAVEPOINT, FENCE, UNDO, FINISH, COMMIT)), Session("b", (RECLAIM, COMMIT)), TIME),
        STATE,
        an_undone_fence_is_no_fence,
    ),
    Scenario(
        "two takers and one fence of a job",
        RUNNING,
        (
            Session("a", (FENCE, LATER, ROLLBACK)),
            Session("b", (Step("claim", CLAIM.sql), COMMIT)),
            Session("c", (Step("reclaim", RECLAIM.sql), COMMIT)),
        ),
        STATE,
        two_takers_and_one_fence,
    ),
)
