"""Two calls on the same row, each in a transaction of its own that commits or rolls back.

A pair states what each call answers alone, and what it answers when it comes second: after the first has
committed, after it has rolled back, and while it is still open. That is every interleaving there is, so each
one is judged exactly.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import LiteralString

from tests.isolation.scenario import COMMIT, ROLLBACK, Run, Scenario, Session, Step


@dataclass(frozen=True)
class Given:
    """What was done before, the state that it left, and the query that shows it: one text a row."""

    statements: tuple[LiteralString, ...]
    left: str
    state: LiteralString


@dataclass(frozen=True)
class Call:
    """One kernel call: what it answers when no other call is there, and the state that an answer leaves
    behind.

    An answer that `leaves` does not list changes nothing that the pair's state shows.
    """

    name: str
    sql: LiteralString
    alone: str
    leaves: Mapping[str, str] = field(default_factory=dict[str, str])

    def answering(self, alone: str) -> "Call":
        """The same call where it answers otherwise, as a late one does."""
        return replace(self, alone=alone)


@dataclass(frozen=True)
class Second:
    """What a call answers that comes second, by what has become of the first one's transaction.

    `while_open` left out: it waits for the end of the first, and then answers accordingly.
    `rolled_back` left out: it answers as if alone.
    """

    committed: str
    while_open: str | None = None
    rolled_back: str | None = None


@dataclass(frozen=True)
class Pair:
    """Two calls that meet; `a_second` says what `a` answers when `b` came first."""

    title: str
    given: Given
    a: Call
    b: Call
    a_second: Second
    b_second: Second
    # What a and b may answer besides when one of them is stopped in its middle: see inside.py.
    overlapping: tuple[tuple[str, str], ...] = ()

    def scenarios(self) -> Iterator[Scenario]:
        """The pair with every way in which the first of two transactions can end, whichever it is."""
        for end_of_a, end_of_b in ((COMMIT, COMMIT), (COMMIT, ROLLBACK), (ROLLBACK, COMMIT)):
            yield Scenario(
                f"{self.title} ({end_of_a.name}, {end_of_b.name})",
                self.given.statements,
                (
                    Session("a", (Step("call", self.a.sql), end_of_a)),
                    Session("b", (Step("call", self.b.sql), end_of_b)),
                ),
                self.given.state,
                self._judge,
            )

    def _judge(self, run: Run) -> Iterator[str]:
        a_first = run["a.call"].started < run["b.call"].started
        first, second = ("a", "b") if a_first else ("b", "a")
        call = self.a if a_first else self.b
        yield from run.expect(f"{first}.call", call.alone, waits=False)
        yield from self._judge_second(run, first, second)
        by_commit = sorted("ab", key=lambda session: run.ended_by(session).ended)
        yield from run.expect_state(*self.left(run, by_commit))

    def _judge_second(self, run: Run, first: str, second: str) -> Iterator[str]:
        call, rule = (self.a, self.a_second) if second == "a" else (self.b, self.b_second)
        rolled_back = rule.rolled_back or call.alone
        if run[f"{first}.call"].refused:
            # A refusal has ended its transaction and freed its locks, whenever the client says rollback.
            yield from run.expect(f"{second}.call", call.alone, waits=False)
        elif run.open_at(first, f"{second}.call") and rule.while_open is not None:
            yield from run.expect(f"{second}.call", rule.while_open, waits=False)
        else:
            answer = rule.committed if run.committed(first) else rolled_back
            yield from run.expect(f"{second}.call", answer, waits=run.open_at(first, f"{second}.call"))

    def left(self, run: Run, order: Iterable[str]) -> tuple[str, ...]:
        """The state that the committed calls leave when they take effect in this order."""
        left = self.given.left
        for session in order:
            if run.committed(session):
                left = self._call(session).leaves.get(run[f"{session}.call"].answer, left)
        return tuple(left.split("; ")) if left else ()

    def _call(self, session: str) -> Call:
        return self.a if session == "a" else self.b
