"""Long histories of checkpoints of two resources at once, each step compared with the model."""

import random
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from fencepost.errors import REFUSALS, InvalidInput
from fencepost.testing import Clock
from tests.integration.kernel.caller import Caller
from tests.integration.kernel.checkpoint_model import Refusal, Resource

REASONS = {kind.sqlstate: reason for reason, kind in REFUSALS.items()} | {InvalidInput.sqlstate: "invalid"}
SHOWN = """
    select resource, number, token, status, whole, frontier, handles, begun_at, stored_at, committed_at,
           state_bytes
    from fencepost.checkpoints order by resource, number
"""
STEPS = 250
ACTS = ("begin", "store", "commit", "abort", "restore", "prune", "take over")


class History:
    """Draws the steps, makes each here and there, and compares."""

    def __init__(self, app: Caller, clock: Clock, seed: int) -> None:
        self._app = app
        self._clock = clock
        self._now = clock.now()
        self._random = random.Random(seed)  # noqa: S311 - Steps of a test.
        self._resources = {"flow:1": Resource(), "flow:2": Resource()}
        for name in self._resources:
            app.execute("select fencepost.lease_acquire(%s, 'o1', '1 day')", name)

    def step(self) -> None:
        name, resource = self._random.choice(list(self._resources.items()))
        token = (
            resource.token if self._random.random() < 0.9 else self._random.choice([resource.token - 1, 99])
        )
        act = self._random.choices(ACTS, [5, 6, 4, 2, 2, 1, 1])[0]
        if self._random.random() < 0.2:
            self._clock.advance(1)
            self._now = self._clock.now()
        getattr(self, "_" + act.replace(" ", "_"))(name, resource, token)
        self._compare()

    def _both(self, here: Any, query: Any, *values: Any) -> Any:
        """The same answer, or the same refusal."""
        try:
            expected, refused = here(), None
        except Refusal as refusal:
            expected, refused = None, str(refusal)
        try:
            rows = [tuple(row.values()) for row in self._app.rows(query, *values)]
            reason = None
        except psycopg.Error as error:
            rows, reason = [], REASONS[error.sqlstate or ""]
        assert reason == refused
        return rows, expected

    def _begin(self, name: str, resource: Resource, token: int) -> None:
        handles = [f"h{self._random.randrange(9)}"]
        rows, number = self._both(
            lambda: resource.begin(self._now, token, handles),
            "select fencepost.checkpoint_begin(%s, %s, %s)",
            *(name, token, Jsonb(handles)),
        )
        assert number is None or rows == [(number,)]

    def _some_number(self, resource: Resource) -> int:
        newest = max(resource.known, default=1)
        return self._random.choice(
            [newest, newest, newest, max(1, newest - 1), max(1, newest - 2), newest + 1]
        )

    def _store(self, name: str, resource: Resource, token: int) -> None:
        number = self._some_number(resource)
        durable = [one for one in resource.known.values() if one.status in ("stored", "committed")]
        expected = durable[-1].frontier if durable else None
        if self._random.random() < 0.1:
            expected = -1
        frontier, whole = self._random.randrange(1000), self._random.random() < 0.5
        state = self._random.randbytes(3)
        self._both(
            lambda: resource.store(self._now, token, number, expected, frontier, state, whole=whole),
            "select fencepost.checkpoint_store(%s, %s, %s, %s, %s, %s, %s, %s)",
            *(name, token, number, None if expected is None else Jsonb(expected)),
            *(Jsonb(frontier), state, Jsonb([frontier]), whole),
        )

    def _commit(self, name: str, resource: Resource, token: int) -> None:
        number = self._some_number(resource)
        self._both(
            lambda: resource.commit(self._now, token, number),
            "select fencepost.checkpoint_commit(%s, %s, %s)",
            *(name, token, number),
        )

    def _abort(self, name: str, resource: Resource, token: int) -> None:
        number = self._some_number(resource)
        self._both(
            lambda: resource.abort(token, number),
            "select fencepost.checkpoint_abort(%s, %s, %s)",
            *(name, token, number),
        )

    def _restore(self, name: str, resource: Resource, token: int) -> None:
        rows, expected = self._both(
            lambda: resource.restore(token),
            "select number, status, frontier, state from fencepost.checkpoint_restore(%s, %s)",
            *(name, token),
        )
        assert rows == (expected or [])

    def _prune(self, name: str, resource: Resource, token: int) -> None:
        keep = self._random.randint(1, 3)
        rows, expected = self._both(
            lambda: resource.prune(token, keep),
            "select fencepost.checkpoint_prune(%s, %s, %s)",
            *(name, token, keep),
        )
        assert expected is None or rows == [(expected,)]

    def _take_over(self, name: str, resource: Resource, token: int) -> None:
        old, new = f"o{resource.token}", f"o{resource.token + 1}"
        self._app.execute("select fencepost.lease_release(%s, %s, %s)", name, old, resource.token)
        self._app.execute("select fencepost.lease_acquire(%s, %s, '1 day')", name, new)
        resource.token += 1

    def _compare(self) -> None:
        expected = [
            (
                *(name, number, one.token, one.status, one.whole, one.frontier, one.handles),
                *(one.begun_at, one.stored_at, one.committed_at),
                None if one.state is None else len(one.state),
            )
            for name, resource in self._resources.items()
            for number, one in sorted(resource.known.items())
        ]
        assert [tuple(row.values()) for row in self._app.rows(SHOWN)] == expected


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_step_of_a_long_history_is_the_one_of_the_model(app: Caller, clock: Clock, seed: int) -> None:
    history = History(app, clock, seed)
    for _ in range(STEPS):
        history.step()
