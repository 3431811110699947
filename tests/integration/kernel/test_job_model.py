"""Long histories of the jobs of two queues at once, each step compared with the model."""

import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from fencepost.errors import REFUSALS
from fencepost.testing import Clock
from tests.integration.kernel.caller import Caller
from tests.integration.kernel.job_model import Jobs

REASONS = {kind.sqlstate: reason for reason, kind in REFUSALS.items()}
SHOWN = """
    select job_id, state, final_status, attempt, tries, owner, run_at, claimed_at, expires_at, finished_at,
           cancel_requested_at, progress, result, error
    from fencepost.jobs order by job_id
"""
STEPS = 250


class History:
    """Draws the steps, makes each here and there, and compares."""

    def __init__(self, app: Caller, clock: Clock, seed: int) -> None:
        self._app = app
        self._clock = clock
        self._random = random.Random(seed)  # noqa: S311 - Steps of a test.
        self._model = Jobs(clock.now())
        self._acts: list[tuple[int, Callable[[], None]]] = [
            (6, self._submit),
            (1, self._dispatch),
            (3, self._dispatched),
            (1, self._recall),
            (1, self._dispatch_failed),
            (6, self._claim_many),
            (2, self._claim_next),
            (2, self._renew),
            (1, self._report),
            (3, self._finish),
            (3, self._leave),
            (1, self._reclaim),
            (2, self._claim_suspects),
            (2, self._cancel),
            (3, self._replay),
            (1, self._discard),
            (1, self._hurry),
            (1, self._pause),
        ]

    def step(self) -> None:
        if self._random.random() < 0.3:
            self._clock.advance(1)
            self._model.now = self._clock.now()
        (act,) = self._random.choices([act for _, act in self._acts], [weight for weight, _ in self._acts])
        act()
        expected = [(number, *job.shown()) for number, job in sorted(self._model.jobs.items())]
        assert self._rows(SHOWN) == expected

    def _rows(self, query: Any, *values: Any) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for row in self._app.rows(query, *values)]

    def _place(self) -> tuple[str, int]:
        return self._random.choice(["mail", "post"]), self._random.choice([0, 1])

    def _seconds(self, *seconds: int) -> timedelta:
        return timedelta(seconds=self._random.choice(seconds))

    def _owner(self) -> str:
        return self._random.choice(["anna", "anna", "bert"])

    def _one(self, *states: str) -> int:
        """Mostly a job in one of these states, sometimes any, or one that is not there."""
        fitting = [number for number, job in self._model.jobs.items() if job.state in states]
        if fitting and self._random.random() < 0.8:
            return self._random.choice(fitting)
        return self._random.choice([*self._model.jobs, 999])

    def _held(self) -> tuple[int, int, str]:
        """A running job with its attempt and its owner: mostly those that are right."""
        number = self._one("running")
        job = self._model.jobs.get(number)
        attempt, owner = (1, None) if job is None else (job.attempt, job.owner)
        if self._random.random() < 0.15:
            attempt += self._random.choice([-1, 1])
        return number, attempt, self._owner() if owner is None or self._random.random() < 0.15 else owner

    def _submit(self) -> None:
        (queue, priority), tries_max = self._place(), self._random.choice([1, 2])
        run_at = self._random.choice([None, None, self._model.now + self._seconds(-1, 1)])
        key = self._random.choice([None, None, "u", "v"])
        ((number, created),) = self._rows(
            """select job_id, created from fencepost.job_submit(
                 %s, 'send', '{}', %s, %s, p_tries_max => %s, p_lease => '3 seconds', p_unique_key => %s)""",
            *(queue, priority, run_at, tries_max, key),
        )
        assert (number, created) == self._model.submit(queue, priority, tries_max, run_at, key, number)

    def _dispatch(self) -> None:
        (queue, priority), limit = self._place(), self._random.choice([1, 9])
        answer = self._rows("select job_id from fencepost.job_dispatch(%s, %s, %s)", queue, priority, limit)
        assert answer == [(number,) for number in self._model.due(queue, priority, limit)]

    def _dispatched(self) -> None:
        number, entry = self._one("pending"), self._random.choice(["1-0", "2-0"])
        answer = self._rows("select fencepost.job_dispatched(array[%s], array[%s], 'life')", number, entry)
        assert answer == [(self._model.dispatched(number, entry),)]

    def _recall(self) -> None:
        number, entry = self._one("dispatched"), self._random.choice(["1-0", "2-0"])
        answer = self._rows("select fencepost.job_recall(array[%s], array[%s])", number, entry)
        assert answer == [(self._model.recall(number, entry),)]

    def _dispatch_failed(self) -> None:
        number, delay = self._one("pending"), self._seconds(0, 2)
        answer = self._rows("select fencepost.job_dispatch_failed(array[%s], 'no', %s)", number, delay)
        assert answer == [(self._model.dispatch_failed(number, "no", delay),)]

    def _claim_many(self) -> None:
        numbers = sorted({self._one("pending", "dispatched", "running") for _ in range(3)})
        owner = self._owner()
        answer = self._rows(
            "select job_id, outcome, refusal from fencepost.job_claim_many(%s::bigint[], %s)", numbers, owner
        )
        # Those that wait are started before a lost one is judged by what its owner holds.
        numbers.sort(key=lambda number: (self._is_running(number), number))
        assert sorted(answer) == sorted((number, *self._model.claim(number, owner)) for number in numbers)

    def _is_running(self, number: int) -> bool:
        return number in self._model.jobs and self._model.jobs[number].state == "running"

    def _claim_next(self) -> None:
        (queue, priority), owner = self._place(), self._owner()
        limit, driven = self._random.choice([1, 2]), self._random.random() < 0.5
        answer = self._rows(
            "select job_id, outcome, refusal from fencepost.job_claim_next(%s, %s, %s, %s, null, %s)",
            *(queue, priority, owner, limit, driven),
        )
        taken = self._model.due(queue, priority, limit, driven=driven)
        assert sorted(answer) == [(number, *self._model.claim(number, owner)) for number in sorted(taken)]

    def _renew(self) -> None:
        number, attempt, owner = self._held()
        if self._random.random() < 0.5:
            ((refusal,),) = self._rows(
                "select refusal from fencepost.job_renew_many(array[%s::bigint], array[%s::bigint], %s)",
                *(number, attempt, owner),
            )
        else:
            refusal = self._reason("select fencepost.job_renew(%s, %s, %s)", number, attempt, owner)
        assert refusal == self._model.renew(number, attempt, owner)

    def _report(self) -> None:
        number, attempt, owner = self._held()
        progress = self._random.randrange(9)
        refusal = self._reason(
            "select fencepost.job_progress(%s, %s, %s, %s)", number, attempt, owner, Jsonb(progress)
        )
        assert refusal == self._model.report(number, attempt, owner, progress)

    def _finish(self) -> None:
        number, attempt, owner = self._held()
        result = self._random.randrange(9)
        values = (number, attempt, owner, "fine", Jsonb(result))
        if self._random.random() < 0.5:
            ((refusal,),) = self._rows(
                """select refusal from fencepost.job_finish_many(
                     array[%s::bigint], array[%s::bigint], %s, array[%s], array[%s::jsonb])""",
                *values,
            )
        else:
            refusal = self._reason("select fencepost.job_finish(%s, %s, %s, %s, %s)", *values)
        assert refusal == self._model.finish(number, attempt, owner, "fine", result)

    def _leave(self) -> None:
        number, attempt, owner = self._held()
        how, delay = self._random.choice(["release", "retry", "bury"]), self._seconds(0, 1)
        error = None if how == "release" else "no"
        answer = self._rows(
            """select refusal, state from fencepost.job_leave_many(
                 array[%s::bigint], array[%s::bigint], %s, array[%s], array[%s], array[%s::interval])""",
            *(number, attempt, owner, how, error, delay),
        )
        assert answer == [self._model.leave(number, attempt, owner, how, error, delay)]

    def _reclaim(self) -> None:
        grace = self._seconds(0, 1)
        answer = self._rows(
            "select job_id, attempt, owner, state, charged from fencepost.job_reclaim(99, %s)", grace
        )
        assert set(answer) == self._model.reclaim(grace)

    def _claim_suspects(self) -> None:
        (queue, _), owner = self._place(), self._random.choice(["anna", "carl", "dora"])
        groups: dict[int, list[int]] = {}
        for number, group in self._rows("select job_id, suspicion_id from fencepost.suspects order by 2, 1"):
            groups.setdefault(group, []).append(number)
        answer = self._rows(
            "select job_id from fencepost.job_claim_suspects(array[%s], %s::jsonb, %s, 99)",
            queue,
            '{"kinds": {"send": "*"}}',
            owner,
        )
        taken = (self._model.claim_suspects(queue, owner, group) for group in groups.values())
        expected = next(filter(None, taken), list[int]())
        assert sorted(number for (number,) in answer) == expected

    def _cancel(self) -> None:
        number = self._one("pending", "dispatched", "running")
        expected = self._random.choice([None, None, "pending", "dispatched", "running"])
        reason = self._reason("select fencepost.job_cancel(%s, 'carol', %s)", number, expected)
        assert (reason or "done") == self._model.cancel(number, expected)

    def _replay(self) -> None:
        number, expected = self._one("dead", "cancelled"), self._random.choice(["dead", "cancelled"])
        reason = self._reason("select fencepost.job_replay(%s, 'carol', %s)", number, expected)
        assert (reason or "done") == self._model.replay(number, expected)

    def _discard(self) -> None:
        number = self._one("dead")
        reason = self._reason("select fencepost.job_discard(%s, 'carol')", number)
        assert (reason or "done") == self._model.discard(number)

    def _hurry(self) -> None:
        number = self._one("pending", "dispatched")
        reason = self._reason("select fencepost.job_hurry(%s, 'carol')", number)
        assert (reason or "done") == self._model.hurry(number)

    def _pause(self) -> None:
        queue, _ = self._place()
        if queue in self._model.paused:
            self._app.execute("select fencepost.queue_resume(%s, 'carol')", queue)
            self._model.paused.remove(queue)
        elif self._random.random() < 0.3:
            self._app.execute("select fencepost.queue_pause(%s, 'carol')", queue)
            self._model.paused.add(queue)

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
