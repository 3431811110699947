"""What a flow refuses at start because of its sinks."""

from typing import Any

import pytest

from fencepost.embedded import PostgresServer
from fencepost.flows import (
    CheckpointId,
    Flow,
    IterableSource,
    Sink,
    StartRefused,
    TwoPhaseCommitSink,
)
from fencepost.flows.sinks.external_postgres import ExternalPostgres
from fencepost.flows.sinks.postgres import PostgresRows
from fencepost.flows.sinks.redis import RedisIdempotentList, RedisSink
from fencepost.flows.sinks.two_phase_postgres import TwoPhasePostgres
from fencepost.flows.sources.redis_streams import RedisStreams
from tests.integration.flows.harness import FlowHarness
from tests.tmp_dirs import server_directory


class Forgetful(TwoPhaseCommitSink[Any, Any]):
    """Its handle is no data."""

    async def begin_transaction(self, checkpoint: CheckpointId) -> Any:
        return object()

    async def invoke(self, value: Any, txn: Any) -> None: ...

    async def pre_commit(self, txn: Any) -> None: ...

    async def commit(self, txn: Any) -> None: ...

    async def abort(self, txn: Any) -> None: ...


def into(sink: Sink, source: Any = None) -> Flow:
    return Flow("refused").source(source or IterableSource([1])).sink(sink)


async def test_a_handle_that_no_checkpoint_can_hold_is_refused(harness: FlowHarness) -> None:
    with pytest.raises(StartRefused, match="cannot hold"):
        await harness.run(into(Forgetful()))


async def test_a_time_to_live_shorter_than_a_replay_is_refused(harness: FlowHarness) -> None:
    with pytest.raises(StartRefused, match=r"ttl_seconds of out is 5, .* up to 11\.05 s"):
        await harness.run(into(RedisIdempotentList("out", ttl_seconds=5)))


async def test_a_source_without_a_group_cannot_be_acknowledged(harness: FlowHarness) -> None:
    source = RedisStreams("{out}in")
    with pytest.raises(StartRefused, match="has no group"):
        await harness.run(into(RedisSink("list", "out", acknowledges=source), source))


async def test_keys_in_different_slots_are_refused(harness: FlowHarness) -> None:
    apart = RedisStreams("in", group="g")
    with pytest.raises(StartRefused, match="hash tag"):
        await harness.run(into(RedisSink("list", "out", acknowledges=apart), apart))
    with pytest.raises(StartRefused, match="hash tag"):
        await harness.run(into(RedisSink("list", "out", frontier_key="elsewhere")))


async def test_a_claim_idle_time_within_the_checkpoints_is_refused(harness: FlowHarness) -> None:
    source = RedisStreams("a", group="g", claim_idle_seconds=5)
    with pytest.raises(StartRefused, match=r"claim_idle_seconds of a is 5, .* up to 5\.05 s"):
        await harness.run(into(PostgresRows("line", ["value"]), source))


async def test_a_database_elsewhere_without_the_table_is_refused(harness: FlowHarness) -> None:
    with pytest.raises(StartRefused, match="no such table"):
        await harness.run(into(ExternalPostgres(harness.database.admin_url, "missing", ["key"], ["value"])))


async def test_a_server_that_prepares_nothing_is_refused(harness: FlowHarness) -> None:
    directory = server_directory()
    with (
        PostgresServer(directory, settings={"max_prepared_transactions": 0}, ephemeral=True) as server,
        pytest.raises(StartRefused, match="max_prepared_transactions"),
    ):
        await harness.run(into(TwoPhasePostgres(server.url(), "line", ["value"])))
