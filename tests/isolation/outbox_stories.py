"""The order of one key: whatever overlaps, its messages are delivered one by one and in order."""

from collections.abc import Iterator

from tests.isolation.scenario import COMMIT, ROLLBACK, Run, Scenario, Session, Step

# One row for each take that a single deliverer needs, and then what may not be taken.
DELIVERED = "select isolation.drain('c')"

PUT_ONE = "select fencepost.outbox_put('c', 'k', '\"one\"')"
TAKE_ONE = "select fencepost.outbox_take('c', 'w', '1 hour', 10)"


PUT = Step("put", "select 'put' from fencepost.outbox_put('c', 'k', '\"two\"')")
PUT_MORE = Step("put more", "select 'put' from fencepost.outbox_put('c', 'k', '\"three\"')")
PUT_OTHER = Step("put", "select 'put' from fencepost.outbox_put('c', 'k', '\"other\"')")
LOOK = Step("look", "select count(*) from fencepost.outbox_messages")
SETTLE = Step("settle", "select fencepost.outbox_settle(1, 1, 'w', 'sent')")
TAKE = Step("take", "select payload #>> '{}' from fencepost.outbox_take('c', 'v', '1 hour', 10)")
HOLD = Step("hold", "select payload #>> '{}' from fencepost.outbox_hold('c', 10, '1 hour')")
SETTLE_HELD = Step("settle", "select fencepost.outbox_settle(1, 0, null, 'sent')")


def puts_are_delivered_in_the_order_of_their_commits(run: Run) -> Iterator[str]:
    """The second put waits for the first one's transaction, so ids, commits and deliveries have one order."""
    order = sorted("ab", key=lambda name: run[f"{name}.put"].started)
    for place, name in enumerate(order):
        waits = place == 1 and run.between(f"{name}.put", f"{order[0]}.put", order[0])
        yield from run.expect(f"{name}.put", "put", waits=waits)
    wrote = {"a": ("two", "three"), "b": ("other",)}
    yield from run.expect_state(*(each for name in order if run.committed(name) for each in wrote[name]))


def a_put_behind_a_head_that_is_settled(run: Run) -> Iterator[str]:
    """Whether the head's settlement saw the put or not, the message behind it is due when both committed."""
    settled_first = run["s.settle"].started < run["p.put"].started
    yield from run.expect("p.put", "put", waits=settled_first and run.open_at("s", "p.put"))
    yield from run.expect("s.settle", "done", waits=False)
    put, settled = run.committed("p"), run.committed("s")
    due = put and settled and max(run.ended_by("p").ended, run.ended_by("s").ended) < run["t.take"].started
    yield from run.expect("t.take", "two" if due else "nothing", waits=False)
    head = () if settled else ("one is sending by w",)
    if not put:
        behind: tuple[str, ...] = ()
    elif due:
        behind = ("two is sending by v",)
    else:
        behind = ("two",) if settled else ("two is queued",)
    yield from run.expect_state(*head, *behind)


def a_hold_and_a_take_of_the_head(run: Run) -> Iterator[str]:
    """The first has the head; the message behind it is due when the holder's settlement committed."""
    held = run["h.hold"].started < run["t.take"].started
    yield from run.expect("h.hold", "one" if held else "nothing", waits=False)
    settle_waits = not held and run.open_at("t", "h.settle")
    yield from run.expect("h.settle", "done" if held else "refused: stale_attempt", waits=settle_waits)
    put_waits = held and run.between("p.put", "h.settle", "h")
    yield from run.expect("p.put", "put", waits=put_waits)
    due = held and run.before("h.commit", "t.take") and run.before("p.commit", "t.take")
    yield from run.expect("t.take", "two" if due else "nothing" if held else "one", waits=False)
    if not held:
        yield from run.expect_state("one is sending by v", "two is queued")
    else:
        yield from run.expect_state("two is sending by v" if due else "two")


def _put_and_settle(title: str, end_of_put: Step, end_of_settle: Step) -> Scenario:
    return Scenario(
        title,
        (PUT_ONE, TAKE_ONE),
        (
            Session("p", (PUT, end_of_put)),
            Session("s", (SETTLE, end_of_settle)),
            Session("t", (TAKE, COMMIT)),
        ),
        DELIVERED,
        a_put_behind_a_head_that_is_settled,
    )


STORIES = (
    Scenario(
        "puts of one key",
        (),
        (Session("a", (PUT, PUT_MORE, COMMIT)), Session("b", (PUT_OTHER, COMMIT))),
        DELIVERED,
        puts_are_delivered_in_the_order_of_their_commits,
    ),
    Scenario(
        "puts of one key, the first rolled back",
        (),
        (Session("a", (PUT, PUT_MORE, ROLLBACK)), Session("b", (PUT_OTHER, COMMIT))),
        DELIVERED,
        puts_are_delivered_in_the_order_of_their_commits,
    ),
    # A snapshot from before the other's commit must not make a second head.
    Scenario(
        "puts of one key, one under REPEATABLE READ",
        (),
        (
            Session("a", (PUT, PUT_MORE, COMMIT)),
            Session("b", (LOOK, PUT_OTHER, COMMIT), begin="begin isolation level repeatable read"),
        ),
        DELIVERED,
        puts_are_delivered_in_the_order_of_their_commits,
    ),
    _put_and_settle("a put behind a head that is settled", COMMIT, COMMIT),
    _put_and_settle("a put that rolls back behind a head that is settled", ROLLBACK, COMMIT),
    _put_and_settle("a put behind a head whose settlement rolls back", COMMIT, ROLLBACK),
    Scenario(
        "a hold and a take of the head, and a put behind it",
        (PUT_ONE,),
        (
            Session("h", (HOLD, SETTLE_HELD, COMMIT)),
            Session("p", (PUT, COMMIT)),
            Session("t", (TAKE, COMMIT)),
        ),
        DELIVERED,
        a_hold_and_a_take_of_the_head,
    ),
)
