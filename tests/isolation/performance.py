"""One run while it goes on: what each session was sent, which have answered, and which wait for which.

That a statement waits is read from the lock table (pg_blocking_pids), not guessed from its slowness. Each
statement is sent by a thread, which takes half the processor time of a task: there are tens of thousands.
"""

import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from typing import Any

import psycopg
from psycopg import sql

from fencepost.errors import Refusal, from_sqlstate
from tests.isolation.scenario import Choice, Happened, Run, Scenario, Session, Step, Violation

Connection = psycopg.Connection[tuple[Any, ...]]

# How long a statement is watched from here before the lock table is asked about it.
LOOK_SECONDS = 0.002
# How long a statement may be neither answered nor waiting, or all may wait for each other.
HANG_SECONDS = 60.0


class Player:
    """One session of a run, on a connection of its own. `threads` has one that is free for each session."""

    def __init__(self, session: Session, connection: Connection, threads: Executor):
        self.name = session.name
        self._connection = connection
        self._threads = threads
        self._session = session
        self._steps = list(session.steps)
        self._sent: Future[str] | None = None
        self._began = False
        self._started = 0
        self._waited = False

    @property
    def pid(self) -> int:
        return self._connection.info.backend_pid

    @property
    def sent(self) -> Future[str] | None:
        """The statement that has no answer yet."""
        return self._sent

    @property
    def has_waited(self) -> bool:
        """Whether the statement was seen waiting for another session."""
        return self._waited

    @property
    def can_go_on(self) -> bool:
        return self._sent is None and bool(self._steps)

    def go_on(self, moment: int) -> None:
        """Send the next step, and do not wait for its answer."""
        assert self._sent is None
        self._started, self._waited = moment, False
        self._sent = self._threads.submit(self._execute, self._steps[0])

    def waits(self) -> None:
        """Note that the statement was seen waiting for another session."""
        self._waited = True

    def answered(self, moment: int) -> Happened:
        """The step whose answer has come."""
        assert self._sent is not None
        answer = self._sent.result()
        self._sent = None
        step = self._steps.pop(0)
        return Happened(self.name, step.name, answer, self._waited, self._started, moment)

    def _with_begin(self, step: Step) -> sql.Composed:
        """The first step brings along its BEGIN and the place to stop at: one journey instead of three."""
        parts: list[sql.Composable] = [sql.SQL(step.sql)]
        if self._session.begin and not self._began:
            self._began = True
            if self._session.pause_at:
                parts.insert(0, sql.SQL("set local isolation.pause_at = {}").format(self._session.pause_at))
            parts.insert(0, sql.SQL(self._session.begin))
        return sql.SQL("; ").join(parts)

    def _execute(self, step: Step) -> str:
        try:
            cursor = self._connection.execute(self._with_begin(step))
        except psycopg.Error as error:
            return _refusal(error)
        while cursor.nextset():
            pass  # The answer is that of the last statement.
        if cursor.description is None:
            return (cursor.statusmessage or "").lower()
        return _words(cursor.fetchall())


def _has_answer(player: Player) -> bool:
    return player.sent is not None and player.sent.done()


def _refusal(error: psycopg.Error) -> str:
    refusal = from_sqlstate(error.sqlstate or "", str(error), error.diag.message_detail)
    if isinstance(refusal, Refusal):
        return f"refused: {refusal.reason}"
    if isinstance(error, psycopg.errors.InFailedSqlTransaction):
        return "aborted"
    return f"error: {type(error).__name__} {error.diag.message_primary}"


def _words(rows: Sequence[tuple[Any, ...]]) -> str:
    """The answer of a function that answers; done for one that returns void, nothing for no row."""
    return ", ".join("done" if row[0] == "" else str(row[0]) for row in rows) or "nothing"


class Performance:
    """One run while it goes on."""

    def __init__(self, scenario: Scenario, players: dict[str, Player], watcher: Connection):
        self.choices: list[Choice] = []
        self._scenario = scenario
        self._players = players
        self._watcher = watcher
        self._happened: list[Happened] = []
        self._moment = 0

    def possible(self) -> tuple[str, ...]:
        """Those that can go on. If none can because all wait, the server frees one or the run hangs."""
        while self._unanswered() and not self._able():
            self._one_answer()
            self._settle()
        return self._able()

    def go_on(self, choice: Choice) -> None:
        """Let the chosen session take its step, until everybody has answered or waits."""
        self.choices.append(choice)
        player = self._players[choice.chosen]
        player.go_on(self._next_moment())
        self._settle()

    def abandon(self) -> None:
        """End the sessions without an answer: a waiting backend does not notice that its client is gone."""
        sent = self._sent()
        pids = [player.pid for player in self._unanswered()]
        self._watcher.execute("select pg_terminate_backend(pid) from unnest(%s::int[]) pid", (pids,))
        wait(sent)

    def seen(self, state: tuple[str, ...]) -> Run:
        return Run(tuple(self._happened), tuple(self.choices), state)

    def _able(self) -> tuple[str, ...]:
        return tuple(name for name, player in self._players.items() if player.can_go_on)

    def _unanswered(self) -> list[Player]:
        return [player for player in self._players.values() if player.sent is not None]

    def _sent(self) -> list[Future[str]]:
        return [player.sent for player in self._players.values() if player.sent is not None]

    def _next_moment(self) -> int:
        self._moment += 1
        return self._moment

    def _settle(self) -> None:
        """Until every statement has its answer or is seen to wait for another session of this run."""
        patience_ends = time.monotonic() + HANG_SECONDS
        while sent := self._sent():
            wait(sent, timeout=LOOK_SECONDS)
            if not self._collect() and self._all_wait(self._unanswered()):
                return
            if time.monotonic() > patience_ends:
                raise self._hang()

    def _one_answer(self) -> None:
        answered, _ = wait(self._sent(), timeout=HANG_SECONDS, return_when=FIRST_COMPLETED)
        if not answered:
            raise self._hang()
        self._collect()

    def _collect(self) -> bool:
        """Take the answers that have come, and say whether there were any.

        One that waited answers after the one that let it go on, though its answer may be read first.
        """
        players = self._unanswered()
        # Looked at once: an answer may come meanwhile.
        with_answer = [player for player in players if _has_answer(player)]
        under_way = any(player not in with_answer and not player.has_waited for player in players)
        answered = [player for player in with_answer if not (under_way and player.has_waited)]
        for player in sorted(answered, key=lambda player: player.has_waited):
            happened = player.answered(self._next_moment())
            self._happened.append(happened)
            if happened.answer.startswith("error: DeadlockDetected"):
                raise Violation(self._scenario, self.seen(()), ["there must be no deadlock"])
        return bool(answered)

    def _all_wait(self, players: list[Player]) -> bool:
        pids = [player.pid for player in self._players.values()]
        cursor = self._watcher.execute(
            "select pid from unnest(%s::int[]) pid where pg_blocking_pids(pid) && %s::int[]",
            ([player.pid for player in players], pids),
        )
        waiting = {int(row[0]) for row in cursor.fetchall()}
        for player in players:
            if player.pid in waiting:
                player.waits()
        return len(waiting) == len(players)

    def _hang(self) -> Violation:
        return Violation(self._scenario, self.seen(()), ["no session may hang"])
