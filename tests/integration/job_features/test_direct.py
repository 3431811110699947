"""The direct path of OUTBOX_ENABLED=false: row, payload, entry; an error means that the job will not run."""

import base64
import json
from collections.abc import AsyncIterator
from typing import Any, LiteralString

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from fencepost import Fencepost, IndeterminateCommit, Job, ServerUnavailable
from fencepost.embedded import Database
from fencepost.jobs.direct_path import envelope
from fencepost.jobs.handler import Handler
from fencepost.kernel import job as kernel_job
from fencepost.redis_streams.connection import connect_sync
from fencepost.redis_streams.stream import Dispatched, Streams
from tests.integration.job_features.conftest import Working, quick
from tests.integration.job_features.probes import Probes


@pytest.fixture
async def direct(database: Database, redis_url: str) -> AsyncIterator[Fencepost]:
    settings = quick(outbox_enabled=False, payload_ttl_seconds=3600)
    async with Fencepost(database.url, redis_url=redis_url, job_settings=settings) as fp:
        yield fp


@pytest.fixture
def redis(redis_url: str) -> Any:
    with connect_sync(redis_url, reply_seconds=5) as redis:
        yield redis


def declare(fp: Fencepost) -> Handler[[str]]:
    @fp.job("default", priority="normal")
    async def one(job: Job, text: str) -> str:
        return text.upper()

    return one


def is_empty(redis: Any) -> bool:
    return not redis.keys("task:payload:*") and not redis.xlen("deepoj:jobs")


def as_admin(probes: Probes, statement: LiteralString) -> None:
    """Make PostgreSQL fail where a disk might be full."""
    with probes.database.connect_admin() as admin:
        admin.execute(statement)


def test_the_envelope_is_what_readers_of_the_stream_know() -> None:
    sent = json.loads(envelope({"text": "grün"}))
    assert {name: sent[name] for name in ("schema_version", "encoding", "content_type")} == {
        "schema_version": 1,
        "encoding": "base64",
        "content_type": "application/json",
    }
    assert json.loads(base64.b64decode(sent["task_data_b64"])) == {"text": "grün"}


async def test_row_payload_and_entry_are_written(direct: Fencepost, probes: Probes, redis: Any) -> None:
    job = await direct.submit(declare(direct).submission("hello"))
    ref = f"task:payload:{job.job_id}"
    assert json.loads(redis.get(ref)) == json.loads(envelope({"text": "hello"}))
    assert 3500 < redis.ttl(ref) <= 3600
    [(entry_id, fields)] = redis.xrange("deepoj:jobs")
    assert set(fields) == {"job_id", "enqueue_ts", "payload_ref", "priority"}
    assert (fields["job_id"], fields["payload_ref"], fields["priority"]) == (str(job.job_id), ref, "1")
    event = "select status, stream_entry_id from fencepost.outbox_events"
    assert probes.rows(event) == [("delivered", entry_id)]


async def test_a_worker_runs_it_once_and_leaves_no_payload_behind(
    direct: Fencepost, probes: Probes, redis: Any, working: Working
) -> None:
    one = declare(direct)
    async with working(direct, outbox_enabled=False):
        jobs = [await direct.submit(one.submission("hello")) for _ in range(10)]
        assert [await direct.result(job, within=60) for job in jobs] == ["HELLO"] * 10
        # The worker's own dispatcher may have been faster: then the direct path's entry comes second.
        await probes.until("no payload and no entry is left", lambda: is_empty(redis))
    assert probes.column("select distinct attempt from fencepost.jobs") == [1]


async def test_a_payload_that_was_written_after_its_job_was_finished_goes_with_its_entry(
    direct: Fencepost, probes: Probes, redis: Any, monkeypatch: pytest.MonkeyPatch, working: Working
) -> None:
    slow = Redis.set

    async def set_late(self: Any, key: str, *values: Any, **options: Any) -> Any:
        if key.startswith("task:payload:"):
            await probes.until_state(int(key.rpartition(":")[2]), "finished")
        return await slow(self, key, *values, **options)

    monkeypatch.setattr(Redis, "set", set_late)
    one = declare(direct)
    async with working(direct, outbox_enabled=False):
        await direct.submit(one.submission("hello"))
        await probes.until("no payload and no entry is left", lambda: is_empty(redis))
    assert probes.column("select attempt from fencepost.jobs") == [1]


async def test_a_failed_entry_takes_the_payload_back_and_answers_an_error(
    direct: Fencepost, probes: Probes, redis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: Any) -> Any:
        raise RedisConnectionError("gone")

    monkeypatch.setattr(Streams, "dispatch", fail)
    with pytest.raises(ServerUnavailable, match=r"Redis did not take job .*OUTBOX_ENABLED=true"):
        await direct.submit(declare(direct).submission("hello"))
    assert redis.keys("task:payload:*") == []
    assert probes.column("select state from fencepost.jobs") == ["cancelled"], (
        "an error means: it does not run"
    )


async def test_without_redis_the_submission_fails(database: Database, probes: Probes) -> None:
    settings = quick(outbox_enabled=False)
    async with Fencepost(database.url, redis_url="redis://127.0.0.1:1/0", job_settings=settings) as fp:
        with pytest.raises(ServerUnavailable):
            await fp.submit(declare(fp).submission("hello"))
    assert probes.column("select state from fencepost.jobs") == ["cancelled"]


async def test_a_job_that_somebody_drives_already_was_submitted(
    direct: Fencepost, probes: Probes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dispatcher was faster, and then our own entry could not be written: it will run, so no error."""

    async def fail(_: Any, __: str, ___: int, job_ids: list[int], ____: int) -> Any:
        await direct.run(kernel_job.dispatched(job_ids, ["1-0"], "life"))
        raise RedisConnectionError("gone")

    monkeypatch.setattr(Streams, "dispatch", fail)
    job = await direct.submit(declare(direct).submission("hello"))
    assert probes.state(job.job_id) == "dispatched"


async def test_what_a_full_stream_does_not_take_is_submitted_and_runs_once(
    direct: Fencepost, probes: Probes, monkeypatch: pytest.MonkeyPatch, working: Working
) -> None:
    """An error would make the caller submit again a job that runs."""

    async def full(*_: Any) -> Dispatched:
        return Dispatched("life", [])

    one = declare(direct)
    with monkeypatch.context() as patch:
        patch.setattr(Streams, "dispatch", full)
        job = await direct.submit(one.submission("hello"))
    assert probes.state(job.job_id) == "pending"
    async with working(direct):
        assert await direct.result(job, within=60) == "HELLO"
    assert probes.column("select attempt from fencepost.jobs") == [1]


async def test_an_entry_that_could_not_be_recorded_is_no_failure(
    direct: Fencepost, probes: Probes, redis: Any, working: Working
) -> None:
    one = declare(direct)
    as_admin(
        probes,
        "alter function fencepost.job_dispatched rename to kept;"
        " create function fencepost.job_dispatched(bigint[], text[], text) returns bigint language plpgsql"
        " as $$ begin raise exception 'no room on the device' using errcode = '53100'; end $$",
    )
    job = await direct.submit(one.submission("hello"))
    assert probes.state(job.job_id) == "pending"
    assert redis.xlen("deepoj:jobs") == 1
    as_admin(
        probes,
        "drop function fencepost.job_dispatched; alter function fencepost.kept rename to job_dispatched",
    )
    async with working(direct):
        assert await direct.result(job, within=60) == "HELLO"
    assert probes.column("select attempt from fencepost.jobs") == [1]


async def test_a_job_that_could_not_be_taken_back_is_no_plain_error(
    direct: Fencepost, probes: Probes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: Any) -> Any:
        as_admin(probes, "drop function fencepost.job_cancel")
        raise RedisConnectionError("gone")

    monkeypatch.setattr(Streams, "dispatch", fail)
    with pytest.raises(IndeterminateCommit, match="it may run"):
        await direct.submit(declare(direct).submission("hello"))
    assert probes.column("select state from fencepost.jobs") == ["pending"]


async def test_a_delayed_job_is_left_to_the_outbox(direct: Fencepost, probes: Probes, redis: Any) -> None:
    await direct.submit(declare(direct).options(delay_seconds=60).submission("hello"))
    assert probes.column("select state from fencepost.jobs") == ["pending"]
    assert redis.keys("*") == []


async def test_with_the_outbox_nothing_is_written_to_redis(fp: Fencepost, probes: Probes, redis: Any) -> None:
    await fp.submit(declare(fp).submission("hello"))
    assert probes.column("select status from fencepost.outbox_events") == ["pending"]
    assert redis.keys("*") == []
