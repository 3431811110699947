"""A request in several steps: its response is added, its savepoint is rolled back, its repeat asks again."""

from collections.abc import Iterator

from tests.isolation.scenario import COMMIT, ROLLBACK, Run, Scenario, Session, Step

STATE = "select key || coalesce(' ' || response::text, '') from fencepost.idempotency_keys"

CLAIM = "select outcome || coalesce(' ' || response::text, '') from fencepost.claim('s', 'k', 'd')"
FIRST = Step("claim", CLAIM)
AGAIN = Step("claim again", CLAIM)
REMEMBER = Step("remember", "select fencepost.remember('s', 'k', '7')")


def the_repeat_gets_the_remembered_response(run: Run) -> Iterator[str]:
    a_first = run["a.claim"].started < run["b.claim"].started
    if a_first:
        yield from run.expect("a.claim", "claimed", waits=False)
        yield from run.expect("a.remember", "done", waits=False)
        over = run.ended_by("a").ended < run["b.claim"].started
        answer = ("replay 7" if run.committed("a") else "claimed") if over else "in_flight"
        yield from run.expect("b.claim", answer, waits=False)
    else:
        yield from run.expect("b.claim", "claimed", waits=False)
        over = run.before("b.commit", "a.claim")
        yield from run.expect("a.claim", "duplicate" if over else "in_flight", waits=False)
        # No transaction adds a response to what another has claimed, seen or not.
        seen = run.before("b.commit", "a.remember")
        yield from run.expect("a.remember", f"refused: {'duplicate' if seen else 'not_found'}", waits=False)
    claimed_by_b = run["b.claim"].answer == "claimed"
    remembered = ("k 7",) if run["a.claim"].answer == "claimed" and run.committed("a") else ()
    yield from run.expect_state(*(("k",) if claimed_by_b else remembered))


def an_undone_claim_frees_the_key(run: Run) -> Iterator[str]:
    """A rollback to a savepoint takes the key along, and its lock too."""
    b_first = run["b.claim"].started < run["a.claim"].started
    if b_first:
        yield from run.expect("b.claim", "claimed", waits=False)
        yield from run.expect(
            "a.claim", "duplicate" if run.before("b.commit", "a.claim") else "in_flight", waits=False
        )
    else:
        yield from run.expect("a.claim", "claimed", waits=False)
        undone = run.before("a.undo", "b.claim")
        yield from run.expect("b.claim", "claimed" if undone else "in_flight", waits=False)
    yield from run.expect_state(*(("k",) if run["b.claim"].answer == "claimed" else ()))


def asking_again_finds_the_answer(run: Run) -> Iterator[str]:
    """in_flight says: ask again. When the other has ended, the answer is final, in the same transaction."""
    if run["b.claim"].started < run["a.claim"].started:
        yield from run.expect("b.claim", "claimed", waits=False)
        yield from run.expect("b.claim again", "duplicate", waits=False)
    else:
        for ask in ("b.claim", "b.claim again"):
            over = run.ended_by("a").ended < run[ask].started
            repeated = ask == "b.claim again" and run["b.claim"].answer == "claimed"
            final = "duplicate" if run.committed("a") or repeated else "claimed"
            yield from run.expect(ask, final if over else "in_flight", waits=False)
    claimed = run["a.claim"].answer == "claimed" and run.committed("a")
    claimed = claimed or "claimed" in (run["b.claim"].answer, run["b.claim again"].answer)
    yield from run.expect_state(*(("k",) if claimed else ()))


STORIES = (
    Scenario(
        "a response is added",
        (),
        (Session("a", (FIRST, REMEMBER, COMMIT)), Session("b", (FIRST, COMMIT))),
        STATE,
        the_repeat_gets_the_remembered_response,
    ),
    Scenario(
        "a response is added and rolled back",
        (),
        (Session("a", (FIRST, REMEMBER, ROLLBACK)), Session("b", (FIRST, COMMIT))),
        STATE,
        the_repeat_gets_the_remembered_response,
    ),
    Scenario(
        "a claim inside a savepoint that is rolled back",
        (),
        (
            Session("a", (Step("savepoint", "savepoint s"), FIRST, Step("undo", "rollback to s"), COMMIT)),
            Session("b", (FIRST, COMMIT)),
        ),
        STATE,
        an_undone_claim_frees_the_key,
    ),
    Scenario(
        "a repeat asks again after a commit",
        (),
        (Session("a", (FIRST, COMMIT)), Session("b", (FIRST, AGAIN, COMMIT))),
        STATE,
        asking_again_finds_the_answer,
    ),
    Scenario(
        "a repeat asks again after a rollback",
        (),
        (Session("a", (FIRST, ROLLBACK)), Session("b", (FIRST, AGAIN, COMMIT))),
        STATE,
        asking_again_finds_the_answer,
    ),
)
