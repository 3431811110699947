"""A lease over several steps: what a fence keeps out, what it lets pass, and until when."""

from collections.abc import Iterator

from tests.isolation.scenario import COMMIT, ROLLBACK, Run, Scenario, Session, Step

STATE = """
select coalesce(owner, 'free') || ' ' || token from fencepost.lease
union all select 'written by ' || writer from isolation.effect
"""
HELD = ("select fencepost.lease_acquire('r', 'a', '1 hour')",)

FENCE = Step("fence", "select fencepost.lease_fence('r', 1)")
WRITE = Step("write", "insert into isolation.effect values ('a') returning 'written'")
RENEW = Step("renew", "select token from fencepost.lease_renew('r', 'a', 1, '1 hour')")
RELEASE = Step("release", "select fencepost.lease_release('r', 'a', 1)")
ACQUIRE_B = Step("acquire", "select token from fencepost.lease_acquire('r', 'b', '1 hour')")
ACQUIRE_C = Step("acquire", "select token from fencepost.lease_acquire('r', 'c', '1 hour')")
LATER = Step("later", "select isolation.at(3601)")

TIME = Session("time", (LATER,), begin=None)
TAKER = Session("b", (ACQUIRE_B, COMMIT))

NOT_OWNER = "refused: not_owner"
LATE = "refused: lease_expired"


def no_takeover_inside_the_fence(run: Run) -> Iterator[str]:
    """Every acquisition that was granted a new token was granted it before the fence or after its end."""
    fence, end = run["a.fence"], run.ended_by("a")
    for taken in (each for each in run.happened if each.step == "acquire" and each.answer == "2"):
        if fence.answer == "done" and fence.ended < taken.ended < end.ended:
            yield f"{taken.session} took over while the fence of a was open"


def the_fence_is_judged_at_its_moment(run: Run) -> Iterator[str]:
    """Before the expiry it is granted; after it the reason is the takeover, if there was one."""
    taken_over = run.before("time.later", "b.acquire") and run["b.acquire"].started < run["a.fence"].started
    if not run.before("time.later", "a.fence"):
        yield from run.expect("a.fence", "done", waits=False)
    elif taken_over:
        yield from run.expect("a.fence", NOT_OWNER, waits=run.open_at("b", "a.fence"))
    else:
        yield from run.expect("a.fence", LATE, waits=False)


def a_takeover_waits_for_the_fenced_write(run: Run) -> Iterator[str]:
    yield from the_fence_is_judged_at_its_moment(run)
    expired = run.before("time.later", "b.acquire")
    fenced = run["a.fence"].answer == "done"
    yield from run.expect("a.write", "written" if fenced else "aborted")
    waits = fenced and expired and run.between("b.acquire", "a.fence", "a")
    yield from run.expect("b.acquire", "2" if expired else NOT_OWNER, waits=waits)
    yield from no_takeover_inside_the_fence(run)
    written = ["written by a"] if fenced and run.committed("a") else []
    yield from run.expect_state("b 2" if expired else "a 1", *written)


def a_renewal_that_commits_keeps_the_lease(run: Run) -> Iterator[str]:
    """They begin at 0:30, and later it is 1:10: unrenewed, the lease ends at 1:00, renewed at 1:30."""
    renewed_first = run["a.renew"].started < run["b.acquire"].started
    late = run.before("time.later", "b.acquire")
    if not run.before("time.later", "a.renew"):
        yield from run.expect("a.renew", "1", waits=False)
    elif late and not renewed_first:
        yield from run.expect("a.renew", NOT_OWNER, waits=run.open_at("b", "a.renew"))
    else:
        yield from run.expect("a.renew", LATE, waits=False)
    renewed = run["a.renew"].answer == "1" and renewed_first
    lost = late and not (renewed and run.committed("a"))
    waits = late and renewed and run.between("b.acquire", "a.renew", "a")
    yield from run.expect("b.acquire", "2" if lost else NOT_OWNER, waits=waits)
    yield from run.expect_state("b 2" if lost else "a 1")


def an_undone_fence_keeps_nobody_out(run: Run) -> Iterator[str]:
    """A rollback to a savepoint releases the lock that was taken inside it."""
    expired = run.before("time.later", "b.acquire")
    fenced = run["a.fence"].answer == "done"
    yield from the_fence_is_judged_at_its_moment(run)
    inside = run["a.fence"].ended < run["b.acquire"].started < run["a.undo"].ended
    yield from run.expect("b.acquire", "2" if expired else NOT_OWNER, waits=expired and fenced and inside)
    if expired and fenced and inside and not run["a.undo"].ended < run["b.acquire"].ended:
        yield "b took over before the fence was undone"
    yield from run.expect_state("b 2" if expired else "a 1")


def two_takers_and_one_fence(run: Run) -> Iterator[str]:
    """Of those who come after the expiry the first gets the token 2, and the second finds its holder."""
    takers = sorted("bc", key=lambda name: run[f"{name}.acquire"].started)
    late = [name for name in takers if run.before("a.later", f"{name}.acquire")]
    for name in set(takers) - set(late):
        yield from run.expect(f"{name}.acquire", NOT_OWNER, waits=False)
    for place, name in enumerate(late):
        fenced = run.between(f"{name}.acquire", "a.fence", "a")
        behind = place == 1 and run.open_at(late[0], f"{name}.acquire")
        yield from run.expect(f"{name}.acquire", NOT_OWNER if place else "2", waits=fenced or behind)
    yield from no_takeover_inside_the_fence(run)
    yield from run.expect_state(f"{late[0]} 2" if late else "a 1")


def a_release_passes_but_the_next_owner_waits(run: Run) -> Iterator[str]:
    free = run.before("heart.release", "b.acquire")
    taken_first = free and run["b.acquire"].started < run["a.fence"].started
    if not run.before("heart.release", "a.fence"):
        yield from run.expect("a.fence", "done", waits=False)
    else:
        yield from run.expect("a.fence", NOT_OWNER, waits=taken_first and run.open_at("b", "a.fence"))
    yield from run.expect("heart.release", "done", waits=False)
    fenced = run["a.fence"].answer == "done"
    waits = fenced and free and run.between("b.acquire", "a.fence", "a")
    yield from run.expect("b.acquire", "2" if free else NOT_OWNER, waits=waits)
    yield from no_takeover_inside_the_fence(run)
    written = ["written by a"] if fenced else []
    yield from run.expect_state("b 2" if free else "free 1", *written)


STORIES = (
    Scenario(
        "a takeover waits for a fenced write that commits",
        HELD,
        (Session("a", (FENCE, WRITE, COMMIT)), TAKER, TIME),
        STATE,
        a_takeover_waits_for_the_fenced_write,
    ),
    Scenario(
        "a takeover waits for a fenced write that rolls back",
        HELD,
        (Session("a", (FENCE, WRITE, ROLLBACK)), TAKER, TIME),
        STATE,
        a_takeover_waits_for_the_fenced_write,
    ),
    Scenario(
        "a renewal that commits keeps the lease",
        (*HELD, "select isolation.at(1800)"),
        (
            Session("a", (RENEW, COMMIT)),
            TAKER,
            Session("time", (Step("later", "select isolation.at(4200)"),), begin=None),
        ),
        STATE,
        a_renewal_that_commits_keeps_the_lease,
    ),
    Scenario(
        "a renewal that rolls back loses the lease",
        (*HELD, "select isolation.at(1800)"),
        (
            Session("a", (RENEW, ROLLBACK)),
            TAKER,
            Session("time", (Step("later", "select isolation.at(4200)"),), begin=None),
        ),
        STATE,
        a_renewal_that_commits_keeps_the_lease,
    ),
    Scenario(
        "a fence inside a savepoint that is rolled back",
        HELD,
        (
            Session("a", (Step("savepoint", "savepoint s"), FENCE, Step("undo", "rollback to s"), COMMIT)),
            TAKER,
            TIME,
        ),
        STATE,
        an_undone_fence_keeps_nobody_out,
    ),
    Scenario(
        "two takers and one fence",
        HELD,
        (Session("a", (FENCE, LATER, COMMIT)), TAKER, Session("c", (ACQUIRE_C, COMMIT))),
        STATE,
        two_takers_and_one_fence,
    ),
    Scenario(
        "a release passes a fence, and the next owner waits for it",
        HELD,
        (Session("a", (FENCE, WRITE, COMMIT)), TAKER, Session("heart", (RELEASE,), begin=None)),
        STATE,
        a_release_passes_but_the_next_owner_waits,
    ),
)
