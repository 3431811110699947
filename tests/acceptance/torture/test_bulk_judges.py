"""The judges of the bulk forms see one wrong row, or one wrong answer, among all the right ones."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from typing import Any, LiteralString

import psycopg
import pytest

from fencepost import Fencepost
from fencepost.flows._shuffle import ChannelKeys
from fencepost.redis_streams.connection import connect_sync
from fencepost_nonces._settings import NoncesSettings
from fencepost_nonces.node import Node
from fencepost_nonces.signer import Signer
from fencepost_torture import _row_counter as row_counter
from fencepost_torture._operation_log import Operation, OperationLog
from fencepost_torture._system_environment import Account, SystemEnvironment
from fencepost_torture.systems._flows import BulkFlows
from fencepost_torture.systems._jobs import Jobs
from fencepost_torture.systems._leases import Leases
from fencepost_torture.systems._nonces import CHAIN, BulkNonces, NonceCaller
from tests.acceptance.torture.wreckage import left, rules, wreck
from tests.waiting_for import until

PLACES, SIGNERS, SIZE, BLOCKS = 2, 2, 10, 24


class FewNonces(BulkNonces):
    """The bulk form with blocks of ten, which a test has used up in a moment."""

    signers, size, helping, processes = SIGNERS, SIZE, BLOCKS, PLACES


@pytest.fixture
async def nonces(env: SystemEnvironment) -> AsyncGenerator[FewNonces]:
    system = FewNonces()
    with system.open(env):
        await asyncio.to_thread(system.ask, env, 0)
        for place in range(PLACES):
            async with caller(env, place) as work:
                await work
        assert system.account(env) == Account(BLOCKS * SIZE, BLOCKS * SIZE)
        yield system


@asynccontextmanager
async def caller(env: SystemEnvironment, place: int) -> AsyncGenerator[asyncio.Future[Any]]:
    """One node with its caller, which stops when nothing of its part is left."""
    async with Fencepost(env.database.url) as fp:
        node = Node(fp, NoncesSettings(node_address=f"http://node-{place}", lease_seconds=10))
        await node.start()
        stop = asyncio.Event()
        working = NonceCaller(fp, node, OperationLog(env.operation_log.path, f"c{place}"), place, SIZE, stop)
        tasks = [asyncio.create_task(working.work(Signer.of(CHAIN, f"s{n}"))) for n in range(SIGNERS)]
        try:
            yield asyncio.ensure_future(used(env, place))
        finally:
            stop.set()
            await asyncio.gather(*tasks)
            await node.stop()


async def used(env: SystemEnvironment, place: int) -> None:
    left: LiteralString = "select count(*) from block where place = %s and id not in (select block from used)"
    await until("every block of the place is used", lambda: env.value(left, (place,)) == 0)


def retell(env: SystemEnvironment, change: Callable[[list[Operation]], None]) -> None:
    """What the callers were told, as it would stand there if it had been told otherwise."""
    operations = env.operation_log.operations()
    change(operations)
    lines: list[dict[str, Any]] = []
    for number, operation in enumerate(operations):
        name = {"op": f"o{number}"}
        about = {"what": operation.what, "subject": operation.subject, "q": operation.question}
        lines.append({**name, **about, "at": operation.begun})
        if not operation.is_unknown:
            lines.append({**name, "at": operation.ended, "a": operation.answer})
    env.operation_log.path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def reservations(operations: list[Operation], *, given_back: bool) -> list[Operation]:
    return [
        operation
        for operation in operations
        if operation.what == "reserve" and operation.question["request"].endswith(".0") is given_back
    ]


async def test_an_honest_history_of_many_nonces_is_accepted(
    env: SystemEnvironment, nonces: FewNonces
) -> None:
    assert rules(nonces, env) == set()
    told = env.operation_log.operations()
    assert {operation.question["count"] for operation in reservations(told, given_back=False)} == {SIZE}
    assert reservations(told, given_back=True)


async def test_a_request_with_two_nonces_is_seen(env: SystemEnvironment, nonces: FewNonces) -> None:
    wreck(
        env,
        "drop index fencepost.nonce_allocation_request",
        """insert into fencepost.nonce_allocation
           select (jsonb_populate_record(a, jsonb_build_object('nonce', s.next_nonce))).*
           from fencepost.nonce_allocation a join fencepost.nonce_signer s using (signer_id)
           where a.status = 'CONSUMED' limit 1""",
    )

    assert rules(nonces, env) == {"doubled"}


async def test_a_request_without_a_nonce_is_seen(env: SystemEnvironment, nonces: FewNonces) -> None:
    wreck(
        env,
        """delete from fencepost.nonce_allocation a using fencepost.nonce_signer s
           where s.signer_id = a.signer_id and s.signer = 's1' and a.nonce = 7""",
    )

    # Its caller was told a nonce that the database does not know, which is as bad as one that is another's.
    assert rules(nonces, env) == {"lost", "no nonce left out", "doubled"}


async def test_a_nonce_that_was_never_used_is_seen(env: SystemEnvironment, nonces: FewNonces) -> None:
    wreck(
        env,
        """update fencepost.nonce_allocation set status = 'HELD', locked_until = fencepost.clock()
           where nonce = 7 and signer_id = 1""",
    )

    assert rules(nonces, env) == {"lost"}


async def test_a_nonce_that_no_caller_asked_for_is_seen(env: SystemEnvironment, nonces: FewNonces) -> None:
    wreck(
        env,
        """update fencepost.nonce_allocation set request_id = '9999', tx_hash = 'tx-9999'
           where nonce = 7 and signer_id = 1""",
    )

    # The caller that it belonged to is without one, and was told that it has it.
    assert rules(nonces, env) == {"unrequested", "lost", "doubled"}


async def test_blocks_that_the_database_has_forgotten_are_lost(
    env: SystemEnvironment, nonces: FewNonces
) -> None:
    await asyncio.to_thread(nonces.ask, env, 1)
    wreck(env, "delete from block where id >= 24")

    assert rules(nonces, env) == {"lost"}


async def test_a_nonce_that_was_used_by_another_caller_is_seen(
    env: SystemEnvironment, nonces: FewNonces
) -> None:
    wreck(env, "update fencepost.nonce_allocation set tx_hash = 'tx-0' where nonce = 7 and signer_id = 1")

    assert rules(nonces, env) == {"used by its owner"}


async def test_two_callers_that_were_told_one_nonce_are_seen(
    env: SystemEnvironment, nonces: FewNonces
) -> None:
    def tell_one_number_less(operations: list[Operation]) -> None:
        second = [each for each in reservations(operations, given_back=False) if each.subject == "s0"][1]
        second.answer[0][0] -= 1

    retell(env, tell_one_number_less)

    assert rules(nonces, env) == {"doubled", "linearizable"}


async def test_two_callers_that_both_gave_back_one_nonce_are_seen(
    env: SystemEnvironment, nonces: FewNonces
) -> None:
    def tell_both_the_same(operations: list[Operation]) -> None:
        of_one = [each for each in reservations(operations, given_back=True) if each.subject == "s1"]
        of_one[1].answer[:] = of_one[0].answer

    retell(env, tell_both_the_same)

    assert "doubled" in rules(nonces, env)


async def test_a_call_that_stepped_over_a_gap_is_seen(env: SystemEnvironment, nonces: FewNonces) -> None:
    """Each nonce is whose it should be, in the end; but one caller had a new one while a gap was there."""

    def give_back_before(operations: list[Operation]) -> None:
        release = next(each for each in operations if each.what == "release")
        mine = [each for each in reservations(operations, given_back=True) if each.subject == release.subject]
        for moved, begun in ((mine[0], 0.0), (release, 0.2)):
            operations[operations.index(moved)] = replace(moved, begun=begun, ended=begun + 0.1)

    retell(env, give_back_before)

    assert "linearizable" in rules(nonces, env)


RECORDS = 500
OUT: LiteralString = """
    insert into effect (value, arrival)
    select key || '-' || row_number() over (partition by key order by id), id from arrival order by id
"""


class FewFlows(BulkFlows):
    """The bulk form with one helping, which a test has written down in a moment."""

    size = replace(BulkFlows.size, keys=7, helping=RECORDS)


@pytest.fixture
def flows(env: SystemEnvironment) -> Iterator[FewFlows]:
    system = FewFlows()
    with system.open(env):
        system.ask(env, 0)
        wreck(env, OUT)
        yield system


RECORD_DAMAGES: dict[str, tuple[LiteralString, set[str]]] = {
    "nothing": ("analyze effect", set()),
    "a record comes out twice": (
        "insert into effect (value, arrival) select value, arrival from effect where arrival = 499",
        {"doubled"},
    ),
    "a record is lost": ("delete from effect where arrival = 250", {"lost"}),
    "the last records are forgotten as if they had never come": (
        "with gone as (delete from arrival where id > 490) delete from effect where arrival > 490",
        {"lost"},
    ),
    "a record came out and never came in": (
        "insert into effect (value, arrival) values ('k1-73', 501)",
        {"unrequested"},
    ),
    "a record was counted with a state of before": (
        "update effect set value = 'k5-35' where arrival = 250",
        {"as without faults"},
    ),
    "two records of a key changed places": (
        """update effect e set value = o.value, arrival = o.arrival from effect o
           where (e.arrival, o.arrival) in ((250, 257), (257, 250))""",
        {"order of a key"},
    ),
}


@pytest.mark.parametrize(("damage", "seen"), RECORD_DAMAGES.values(), ids=RECORD_DAMAGES)
def test_one_wrong_record_is_seen(
    env: SystemEnvironment, flows: FewFlows, damage: LiteralString, seen: set[str]
) -> None:
    wreck(env, damage)

    assert rules(flows, env) == seen


def test_rows_are_counted_once_whatever_is_rolled_back_and_however_many_lines_there_are(
    env: SystemEnvironment, flows: FewFlows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_counter, "LINES_MAX", 3)
    reading = row_counter.RowCounter()
    for _ in range(10):
        wreck(env, "insert into effect (value, arrival) values ('a', 1), ('b', 2)")
    with env.database.connect_admin() as admin, pytest.raises(psycopg.errors.NotNullViolation):
        admin.execute("insert into effect (value, arrival) values ('a', 1), (null, 2)")

    assert [reading.read(env) for _ in range(3)] == [RECORDS + 20] * 3
    assert env.value("select count(*) from meter") == 1


@pytest.mark.parametrize(("system", "table"), [(Jobs(), "asked"), (Leases(), "wish")], ids=["jobs", "leases"])
def test_what_the_database_has_forgotten_whole_is_lost(
    env: SystemEnvironment, system: Jobs | Leases, table: LiteralString
) -> None:
    """The caller was told that it is there: that no trace of it is left is no excuse."""
    with system.open(env):
        system.ask(env, 0)
        wreck(env, "delete from " + table)

        assert rules(system, env) == {"lost"}


def test_what_stays_in_a_channel_is_seen(env: SystemEnvironment) -> None:
    system = BulkFlows()
    with system.open(env):
        client: Any = connect_sync(env.redis_url, reply_seconds=5)
        with closing(client):
            entry = client.xadd(ChannelKeys("torture", 2, "arrival").stream, {"head": "old"})
            seen = left(system, env)
            client.xdel(ChannelKeys("torture", 2, "arrival").stream, entry)

        assert seen == {"fencepost:{flow:torture/2}:channel:arrival"}
        assert left(system, env) == set()
