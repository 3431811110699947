"""Long histories of two channels at once, each step compared with the model."""

import random
from collections.abc import Callable
from dataclasses import astuple
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from fencepost.errors import REFUSALS
from fencepost.testing import Clock
from tests.integration.kernel.caller import Caller
from tests.integration.kernel.outbox_model import Outbox

REASONS = {kind.sqlstate: reason for reason, kind in REFUSALS.items()}
SHOWN = """
    select id, channel, key, ready, created_at, not_before, state, attempts, take, owner, taken_until,
           settled_at, result, last_error
    from fencepost.outbox_messages order by id
"""
STEPS = 200
OUTCOMES = ("sent", "dead", "failed", "queued", "unknown", "parked")


def documents(values: list[Any]) -> list[Any]:
    return [None if value is None else Jsonb(value) for value in values]


class History:
    """Draws the steps, makes each here and there, and compares."""

    def __init__(self, app: Caller, clock: Clock, seed: int) -> None:
        self._app = app
        self._clock = clock
        self._random = random.Random(seed)  # noqa: S311 - Steps of a test.
        self._model = Outbox(clock.now())
        self._acts: list[tuple[int, Callable[[], None]]] = [
            (4, self._put),
            (2, self._put_many),
            (6, self._take),
            (2, self._hold),
            (2, self._renew),
            (6, self._settle),
            (4, self._settle_many),
            (2, self._expire),
            (2, self._resolve),
        ]

    def step(self) -> None:
        if self._random.random() < 0.3:
            self._clock.advance(1)
            self._model.now = self._clock.now()
        (act,) = self._random.choices([act for _, act in self._acts], [weight for weight, _ in self._acts])
        act()
        expected = [(number, *astuple(one)) for number, one in sorted(self._model.messages.items())]
        assert self._rows(SHOWN) == expected

    def _rows(self, query: Any, *values: Any) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for row in self._app.rows(query, *values)]

    def _channel(self) -> str:
        return self._random.choice(["a", "b"])

    def _key(self) -> str | None:
        return self._random.choice([None, "k", "l"])

    def _owner(self) -> str:
        return self._random.choice(["anna", "anna", "anna", "bert"])

    def _seconds(self, *seconds: int) -> timedelta:
        return timedelta(seconds=self._random.choice(seconds))

    def _delivery(self) -> tuple[int, int, str | None]:
        """A message, a take and an owner: mostly those that are right."""
        moving = [number for number, one in self._model.messages.items() if one.settled_at is None]
        every = list(self._model.messages)
        number = self._random.choice(moving * 4 + every or [1]) if self._random.random() < 0.95 else 999
        known = self._model.messages.get(number)
        take, owner = (0, None) if known is None else (known.take, known.owner)
        if self._random.random() < 0.1:
            take += self._random.choice([-1, 1])
        return (
            number,
            take,
            self._random.choice([None, "anna", "bert"]) if self._random.random() < 0.1 else owner,
        )

    def _put(self) -> None:
        channel, key = self._channel(), self._key()
        at = self._random.choice([None, self._model.now + self._seconds(-1, 1)])
        answer = self._rows("select fencepost.outbox_put(%s, %s, '{}', '{}', %s)", channel, key, at)
        assert answer == [(self._model.put(channel, key, at),)]

    def _put_many(self) -> None:
        channel, keys = self._channel(), [self._key() for _ in range(3)]
        answer = self._rows(
            "select fencepost.outbox_put_many(%s, %s, array_fill('1'::jsonb, array[3]))", channel, keys
        )
        assert answer == [(self._model.put(channel, key, None),) for key in keys]

    def _take(self) -> None:
        channel, owner, lease = self._channel(), self._owner(), self._seconds(1, 3)
        limit, unknown = self._random.choice([0, 1, 5]), self._random.random() < 0.3
        answer = self._rows(
            """select id, attempts, take, taken_until, last_error
               from fencepost.outbox_take(%s, %s, %s, %s, %s)""",
            *(channel, owner, lease, limit, unknown),
        )
        taken = self._model.take(channel, owner, lease, limit, unknown=unknown)
        messages = [(number, self._model.messages[number]) for number in taken]
        assert answer == [
            (number, one.attempts, one.take, one.taken_until, one.last_error) for number, one in messages
        ]

    def _hold(self) -> None:
        channel, limit = self._channel(), self._random.choice([0, 1, 5])
        answer = self._rows("select id, take from fencepost.outbox_hold(%s, %s)", channel, limit)
        held = self._model.due(channel, ("queued", "failed"), limit)
        assert answer == [(number, self._model.messages[number].take) for number in held]

    def _renew(self) -> None:
        number, take, owner = self._delivery()
        lease = self._seconds(1, 3)
        answer = self._rows(
            "select refusal from fencepost.outbox_renew(array[%s::bigint], array[%s::bigint], %s, %s)",
            *(number, take, owner or "anna", lease),
        )
        assert answer == [(self._model.renew(number, take, owner or "anna", lease),)]

    def _end(self) -> tuple[str, str | None, timedelta | None, Any]:
        outcome = self._random.choice(OUTCOMES)
        error = None if outcome == "sent" else self._random.choice([None, "no"])
        return (
            outcome,
            error,
            self._random.choice([None, self._seconds(0, 2)]),
            self._random.choice([None, 7]),
        )

    def _settle(self) -> None:
        number, take, owner = self._delivery()
        outcome, error, delay, result = self._end()
        reason = self._reason(
            "select fencepost.outbox_settle(%s, %s, %s, %s, %s, %s, %s)",
            *(number, take, owner, outcome, error, delay, *documents([result])),
        )
        assert reason == self._model.settle(number, take, owner, outcome, error, delay, result)

    def _settle_many(self) -> None:
        owner = self._random.choice([None, "anna", "anna", "bert"])
        asked = {number: take for number, take, _ in (self._delivery() for _ in range(4))}
        ends = [self._end() for _ in asked]
        outcomes, errors, delays, results = map(list, zip(*ends, strict=True))
        answer = self._rows(
            """select id, refusal from fencepost.outbox_settle_many(
                 %s::bigint[], %s::bigint[], %s, %s, %s::text[], %s::interval[], %s::jsonb[])""",
            *(list(asked), list(asked.values()), owner, outcomes, errors, delays, documents(results)),
        )
        expected = {
            number: self._model.settle(number, take, owner, *end)
            for (number, take), end in sorted(zip(asked.items(), ends, strict=True), key=lambda one: one[0])
        }
        assert dict(answer) == expected

    def _expire(self) -> None:
        channel, outcome, grace = (
            self._channel(),
            self._random.choice(["queued", "unknown"]),
            self._seconds(0, 2),
        )
        answer = self._rows("select fencepost.outbox_expire(%s, %s, 100, %s)", channel, outcome, grace)
        assert sorted(number for (number,) in answer) == self._model.expire(channel, outcome, grace)

    def _resolve(self) -> None:
        number, _, _ = self._delivery()
        known = self._model.messages.get(number)
        states = ["queued", "failed", "unknown", "parked"]
        expected = known.state if known is not None and known.state in states else self._random.choice(states)
        if self._random.random() < 0.2:
            expected = self._random.choice(states)
        outcome = self._random.choice(OUTCOMES)
        reason = self._reason(
            "select fencepost.outbox_resolve(%s, %s, %s, 'carol', 'so', %s)",
            *(number, expected, outcome, Jsonb(7)),
        )
        assert reason == self._model.resolve(number, expected, outcome, "so", 7)

    def _reason(self, query: Any, *values: Any) -> str | None:
        try:
            self._app.execute(query, *values)
        except psycopg.Error as refused:
            return REASONS[refused.sqlstate or ""]
        return None


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_step_of_a_long_history_is_the_one_of_the_model(app: Caller, clock: Clock, seed: int) -> None:
    history = History(app, clock, seed)
    for _ in range(STEPS):
        history.step()
