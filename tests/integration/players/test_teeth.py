"""Planted bugs: each of them makes a check fail that the right service passes."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import psycopg
import pytest

from fencepost.embedded import Database
from fencepost.kernel import idempotency
from fencepost_players._player_store import PlayerStore
from fencepost_players.mutations import pipeline
from fencepost_players.mutations._execution import BatchExecutor
from fencepost_players.mutations.errors import AlreadyExists
from fencepost_players.mutations.planning import Rng, make_plan
from fencepost_players.service import Players
from tests.integration.players import guards
from tests.integration.players.conftest import enrol

EXECUTE = "fencepost._player_execute(text,text,text,text,text,text,bigint,jsonb,interval,boolean,boolean)"


@pytest.fixture
async def ready(players: Players) -> Players:
    await enrol(players, "ann", items={"box": guards.BOXES})
    return players


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every plan that the pipeline makes."""
    made: list[Any] = []

    def watched(plan: Any, rng: Rng) -> Any:
        made.append(make_plan(plan, rng))
        return made[-1]

    monkeypatch.setattr(pipeline, "make_plan", watched)
    return made


def mutate(database: Database, signature: str, right: str, wrong: str) -> None:
    """Plant a bug in a function of this database alone."""
    with database.connect_admin() as admin:
        row = admin.execute("select pg_get_functiondef(%s::regprocedure)", (signature,)).fetchone()
        assert row is not None
        definition = str(row[0])
        assert right in definition, f"{signature} has no {right!r} to be replaced"
        admin.execute(definition.replace(right, wrong).encode())


async def test_the_right_service_passes_every_check(ready: Players, plans: list[Any]) -> None:
    await guards.overtaken_by_its_own_copy(ready)


async def test_the_right_service_survives_a_crash(ready: Players) -> None:
    await guards.crashed_before_it_was_executed(ready)


async def test_the_right_service_keeps_its_dice(ready: Players, plans: list[Any]) -> None:
    await guards.sent_again(ready, plans)


async def test_the_right_service_locks_players_in_order_of_their_ids(
    ready: Players, database: Database
) -> None:
    await enrol(ready, "bob", gold=1)
    await guards.gave_to_somebody_who_is_held(ready, database)


async def test_a_lock_in_the_order_of_the_request_holds_one_and_waits_for_the_other(
    ready: Players, database: Database
) -> None:
    await enrol(ready, "bob", gold=1)
    mutate(
        database,
        "fencepost._player_lock(text[],text,bigint,boolean)",
        "order by p.player_id for update",
        "order by p.player_id <> p_acting for update",
    )
    with pytest.raises(psycopg.errors.LockNotAvailable):
        await guards.gave_to_somebody_who_is_held(ready, database)


async def test_a_key_that_comes_after_the_write_doubles_it(ready: Players, database: Database) -> None:
    """The writes are done whatever the claim says, because it is asked too late."""
    mutate(database, EXECUTE, "if outcome <> 'claimed' then", "if false then")
    with pytest.raises(AssertionError, match="doubled"):
        await guards.overtaken_by_its_own_copy(ready)


async def test_a_key_outside_the_transaction_loses_the_effect(ready: Players, database: Database) -> None:
    with planted_key_outside(database), pytest.raises(AssertionError, match="lost"):
        await guards.crashed_before_it_was_executed(ready)


@contextmanager
def planted_key_outside(database: Database) -> Generator[None]:
    """The key is committed as soon as there is a plan; the execution brings none."""
    right = PlayerStore.execute

    def claimed_first(plan: Any, rng: Rng) -> Any:
        planned = make_plan(plan, rng)
        digest = idempotency.digest("UseItem", guards.BOX.model_dump(mode="json"))
        with psycopg.connect(database.url, autocommit=True) as connection:
            claim = "select outcome from fencepost.claim('player:ann', 'r1', %s)"
            outcome = connection.execute(claim, (digest,)).fetchone()
        if outcome != ("claimed",):
            raise AlreadyExists("It was claimed before, in a transaction of its own.")
        return planned

    async def alone(self: Any, pending: Any) -> None:
        """The bug is planted in the singular form."""

    def unprotected(self: Any, context: Any, planned: Any, version: Any, *, keep: bool) -> Any:
        call = right(self, context, planned, version, keep=keep)
        return type(call)(call.sql, (call.arguments[0], None, *call.arguments[2:]), call.read)

    with (
        mock.patch.object(pipeline, "make_plan", claimed_first),
        mock.patch.object(PlayerStore, "execute", unprotected),
        mock.patch.object(BatchExecutor, "carry", alone),
    ):
        yield


async def test_dice_that_are_not_recorded_can_be_chosen(ready: Players, plans: list[Any]) -> None:
    async def wrong(self: Any, work: Any) -> None:
        """Nothing is written down: the next sending throws anew."""

    with (
        mock.patch.object(pipeline.Pipeline, "_record_seed", wrong),
        pytest.raises(AssertionError, match="other numbers"),
    ):
        await guards.sent_again(ready, plans)


async def test_without_a_digest_another_request_gets_the_first_ones_answer(ready: Players) -> None:
    def same(method: str, body: Any) -> str:
        return "digest"

    with (
        mock.patch.object(idempotency, "digest", same),
        pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"),
    ):
        await guards.reused_its_id(ready)


async def test_without_the_locked_rows_judgement_a_balance_falls_below_zero(
    ready: Players, database: Database
) -> None:
    """The last stand is the constraint: what the function no longer judges, the table does not store."""
    mutate(
        database,
        "fencepost._player_amounts_unfit(text[],jsonb[])",
        "h.is_unknown or h.had < h.taken or",
        "h.is_unknown or",
    )
    for number in range(guards.BOXES // 20):
        await ready.run(guards.BOX, request_id=f"r{number}")
    with pytest.raises(psycopg.errors.CheckViolation):
        await ready.run(guards.BOX, request_id="one-more")
