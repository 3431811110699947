"""What is played and what was seen: sessions with steps, one run of them, and the judge of a run.

A session is one connection in one transaction. Its steps run in order; the steps of different sessions run
in every order that the database allows. A judge is a pure function: it reads what was answered, when, and the
state at the end, and yields an error for everything that is not as it must be.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import LiteralString


@dataclass(frozen=True)
class Step:
    """One statement. Its answer is the first column of its rows, or why it was refused."""

    name: str
    sql: LiteralString


COMMIT = Step("commit", "commit")
ROLLBACK = Step("rollback", "rollback")


@dataclass(frozen=True)
class Session:
    """Steps on one connection in one transaction; without `begin` each step commits alone, as heartbeats do.

    A BEGIN neither locks nor looks, so it goes with the first step instead of being one.
    """

    name: str
    steps: tuple[Step, ...]
    begin: LiteralString | None = "begin"
    # The first call is stopped in its middle at this place, counted from 1.
    pause_at: int = 0


@dataclass(frozen=True)
class Happened:
    """One step of one run. Moments count the starts and the answers of all steps."""

    session: str
    step: str
    answer: str
    waited: bool
    started: int
    ended: int

    @property
    def refused(self) -> bool:
        return self.answer.startswith("refused: ")

    def __str__(self) -> str:
        waited = " (after a wait)" if self.waited else ""
        return f"{self.session}.{self.step} -> {self.answer}{waited}"


@dataclass(frozen=True)
class Choice:
    """At one point of a run: who went on, and who could have."""

    chosen: str
    possible: tuple[str, ...]


@dataclass(frozen=True)
class Run:
    """One interleaving as it was observed."""

    happened: tuple[Happened, ...]
    choices: tuple[Choice, ...]
    state: tuple[str, ...]
    _by_name: dict[str, Happened] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_name = {f"{each.session}.{each.step}": each for each in self.happened}
        object.__setattr__(self, "_by_name", by_name)

    def __getitem__(self, name: str) -> Happened:
        """The step `session.step`."""
        return self._by_name[name]

    def before(self, earlier: str, later: str) -> bool:
        """Whether `earlier` had its answer when `later` was sent."""
        return self[earlier].ended < self[later].started

    def ended_by(self, session: str) -> Happened:
        """How the session's transaction ended: its commit answers `commit`, or `rollback` after a refusal."""
        return next(
            each for each in self.happened if each.session == session and each.step in ("commit", "rollback")
        )

    def committed(self, session: str) -> bool:
        return self.ended_by(session).answer == "commit"

    def open_at(self, session: str, moment: str) -> bool:
        """Whether the session's transaction had begun and not ended when the step `moment` was sent."""
        begun = min(each.started for each in self.happened if each.session == session)
        return begun < self[moment].started < self.ended_by(session).ended

    def between(self, moment: str, since: str, session: str) -> bool:
        """Whether `moment` was sent after `since` was answered and before the session's transaction ended."""
        return self[since].ended < self[moment].started < self.ended_by(session).ended

    def expect(self, name: str, answer: str, *, waits: bool | None = None) -> Iterator[str]:
        """Complain unless the step gave this answer, and waited for another (or did not) before it did."""
        seen = self[name]
        if seen.answer != answer:
            yield f"{name} must answer {answer!r}, but answered {seen.answer!r}"
        if waits is not None and seen.waited != waits:
            yield f"{name} must {'wait' if waits else 'answer at once'}, but did not"

    def expect_state(self, *rows: str) -> Iterator[str]:
        if self.state != rows:
            yield f"the state at the end must be {list(rows)}, but is {list(self.state)}"

    def __str__(self) -> str:
        return "\n".join([*(f"  {each}" for each in self.happened), f"  at the end: {list(self.state)}"])


Judge = Callable[[Run], Iterable[str]]


@dataclass(frozen=True)
class Scenario:
    """The calls of each session, the rows, and what must result in every interleaving."""

    title: str
    given: tuple[LiteralString, ...]
    sessions: tuple[Session, ...]
    state: LiteralString
    judge: Judge


class Violation(AssertionError):
    """An interleaving in which the kernel did not do what it promises."""

    def __init__(self, scenario: Scenario, run: Run, user_errors: Iterable[str]):
        lines = [f"{scenario.title}:", *(f"- {user_error}" for user_error in user_errors), str(run)]
        super().__init__("\n".join(lines))
