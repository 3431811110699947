"""Two calls, one of which is stopped in its middle while the other runs.

A call is many statements, and between two of them another session may do anything. Right are then the answers
that the pair gives in one of its two orders: the calls overlap, so either may count as the first.
"""

from collections.abc import Iterator

from tests.isolation.env import IsolationEnv
from tests.isolation.pairs import Call, Pair, Second
from tests.isolation.scenario import COMMIT, Run, Scenario, Session, Step

HAND = Session(
    "hand",
    (
        Step("hold", "select 'held' from (select pg_advisory_lock(7, 7)) held"),
        Step("let go", "select pg_advisory_unlock(7, 7)"),
    ),
    begin=None,
)


def explore_inside(env: IsolationEnv, pair: Pair) -> list[Run]:
    """Stop each of the two calls at every place where it can be stopped; raises the first Violation."""
    runs: list[Run] = []
    for stopped in "a" if pair.a is pair.b else "ab":
        other = "b" if stopped == "a" else "a"
        place = 1
        # Every run begins so: the pause is armed, the call runs into it, and the other call is sent.
        while found := env.explore(_stopped(pair, stopped, place), ("hand", stopped, other)):
            if found[0].before(f"{stopped}.call", f"{other}.call"):
                break  # The call has no such place: it came through.
            runs += found
            place += 1
    return runs


def _stopped(pair: Pair, stopped: str, place: int) -> Scenario:
    sessions = [
        Session(name, (Step("call", call.sql), COMMIT), pause_at=place if name == stopped else 0)
        for name, call in (("a", pair.a), ("b", pair.b))
    ]
    title = f"{pair.title}, {stopped} stopped at place {place}"
    return Scenario(
        title, pair.given.statements, (*sessions, HAND), pair.given.state, lambda run: _judge(pair, run)
    )


def _judge(pair: Pair, run: Run) -> Iterator[str]:
    answers = (run["a.call"].answer, run["b.call"].answer)
    right = {
        *((pair.a.alone, answer) for answer in _answers_of_second(pair.a, pair.b, pair.b_second)),
        *((answer, pair.b.alone) for answer in _answers_of_second(pair.b, pair.a, pair.a_second)),
        *pair.overlapping,
    }
    if answers not in right:
        yield f"a and b answered {answers}; right are {sorted(right)}"
    states = {pair.left(run, order) for order in ("ab", "ba")}
    if run.state not in states:
        yield f"the state at the end is {run.state}; right are {sorted(states)}"


def _answers_of_second(first: Call, second: Call, rule: Second) -> set[str]:
    """What the second may answer: the first is committed, or open, or has refused itself away."""
    if first.alone.startswith("refused: "):
        return {second.alone}
    return {rule.committed, rule.while_open or rule.committed}
