"""A takeover between the steps of a checkpoint: the new owner restores what is durable."""

from collections.abc import Iterator

from tests.isolation.scenario import COMMIT, ROLLBACK, Run, Scenario, Session, Step

STATE = "select number || ' ' || status || ' under ' || token from fencepost.checkpoint order by number"

HOLD = "select fencepost.lease_acquire('r', 'a', '1 hour')"
BEGIN = "select fencepost.checkpoint_begin('r', 1)"

STORE = Step("store", "select fencepost.checkpoint_store('r', 1, 1, null, '10', 'x')")
CONFIRM = Step("confirm", "select fencepost.checkpoint_commit('r', 1, 1)")
ACQUIRE = Step("acquire", "select token from fencepost.lease_acquire('r', 'b', '1 hour')")
RESTORE = Step("restore", "select number || ' ' || status from fencepost.checkpoint_restore('r', 2)")
ABANDON = Step("abort", "select fencepost.checkpoint_abort('r', 2, 1)")
TIME = Session("time", (Step("later", "select isolation.at(3601)"),), begin=None)

NOT_OWNER = "refused: not_owner"
LATE = "refused: lease_expired"


def the_store_is_judged_at_its_moment(run: Run) -> Iterator[str]:
    taken_over = run.before("time.later", "b.acquire") and run["b.acquire"].started < run["a.store"].started
    if not run.before("time.later", "a.store"):
        yield from run.expect("a.store", "done", waits=False)
    elif taken_over:
        yield from run.expect("a.store", NOT_OWNER, waits=run.open_at("b", "a.store"))
    else:
        yield from run.expect("a.store", LATE, waits=False)


def the_new_owner_restores_what_is_durable(run: Run) -> Iterator[str]:
    yield from the_store_is_judged_at_its_moment(run)
    acquired = run.before("time.later", "b.acquire")
    stored = run["a.store"].answer == "done"
    waits = acquired and stored and run.between("b.acquire", "a.store", "a")
    yield from run.expect("b.acquire", "2" if acquired else NOT_OWNER, waits=waits)
    durable = "stored" if stored and run.committed("a") else "begun"
    yield from run.expect("b.restore", f"1 {durable}" if acquired else "aborted", waits=False)
    yield from run.expect_state(f"1 {durable} under 1")


def the_new_owner_aborts_what_was_never_stored(run: Run) -> Iterator[str]:
    """Store and abort exclude each other whatever the order; after the abort the old owner cannot store."""
    yield from the_store_is_judged_at_its_moment(run)
    stored = run["a.store"].answer == "done"
    confirmed = "done" if not run.before("time.later", "a.confirm") else LATE
    yield from run.expect("a.confirm", confirmed if stored else "aborted", waits=False)
    kept, acquired = stored and run.committed("a"), run.before("time.later", "b.acquire")
    yield from run.expect("b.acquire", "2" if acquired else NOT_OWNER)
    refused = "refused: already_finished" if kept else "done"
    yield from run.expect("b.abort", refused if acquired else "aborted", waits=False)
    yield from run.expect_state(f"1 {'committed' if kept else 'aborted' if acquired else 'begun'} under 1")


STORIES = (
    Scenario(
        "a store and a takeover that restores",
        (HOLD, BEGIN),
        (Session("a", (STORE, COMMIT)), Session("b", (ACQUIRE, RESTORE, COMMIT)), TIME),
        STATE,
        the_new_owner_restores_what_is_durable,
    ),
    Scenario(
        "a store that rolls back and a takeover that restores",
        (HOLD, BEGIN),
        (Session("a", (STORE, ROLLBACK)), Session("b", (ACQUIRE, RESTORE, COMMIT)), TIME),
        STATE,
        the_new_owner_restores_what_is_durable,
    ),
    Scenario(
        "a store that is confirmed and a takeover that aborts",
        (HOLD, BEGIN),
        (Session("a", (STORE, CONFIRM, COMMIT)), Session("b", (ACQUIRE, ABANDON, COMMIT)), TIME),
        STATE,
        the_new_owner_aborts_what_was_never_stored,
    ),
)
