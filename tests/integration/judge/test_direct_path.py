"""The direct path of OUTBOX_ENABLED=false: row, payload, entry; an error means that nothing is left."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, ClassVar, LiteralString, cast

import httpx
import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from fencepost import Fencepost, Refusal, SettingsError
from fencepost.embedded import Database
from fencepost.kernel import job as kernel_job
from fencepost.redis_streams.connection import connect_sync
from fencepost.redis_streams.stream import Dispatched, Streams
from fencepost_judge import _judge_calls as judge_calls
from fencepost_judge._direct_path import DirectPathSettings, envelope
from fencepost_judge._judging import Judgement
from fencepost_judge._rejudging import Filter
from fencepost_judge._requeue import needs_of
from fencepost_judge._role import JudgeRole
from fencepost_judge._service import Judging
from fencepost_judge._settings import JudgeSettings
from tests.integration.judge.judge_env import JudgeEnv, open_office
from tests.waiting_for import until

DIRECT = DirectPathSettings(outbox_enabled=False, payload_ttl_seconds=3600)
PROGRAM = {"problem_id": "echo", "language": "python", "code": "print(input())  # grün"}
LEFT: LiteralString = """
    select (select count(*) from fencepost.job) + (select count(*) from fencepost.judge_submission)
         + (select count(*) from fencepost.idempotency_key) + (select count(*) from fencepost.job_finished)"""


@pytest.fixture
def redis(redis_url: str) -> Iterator[Any]:
    with connect_sync(redis_url, reply_seconds=5) as redis:
        yield redis


@pytest.fixture
async def direct(database: Database, tmp_path: Path, redis_url: str) -> AsyncIterator[JudgeEnv]:
    async with open_office(database, tmp_path, redis_url=redis_url, direct=DIRECT) as office:
        await office.add("ann", JudgeRole.CONTESTANT)
        yield office


def rows(database: Database, query: LiteralString) -> list[tuple[Any, ...]]:
    with database.connect_admin() as admin:
        return admin.execute(query).fetchall()


async def submit(office: JudgeEnv, key: str = "once") -> httpx.Response:
    return await office.ask("ann", "POST", "/submit", json=PROGRAM, headers={"Idempotency-Key": key})


def break_dispatch(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: Any) -> Any:
        raise RedisConnectionError("gone")

    monkeypatch.setattr(Streams, "dispatch", fail)


async def test_row_payload_and_entry_are_written(direct: JudgeEnv, database: Database, redis: Any) -> None:
    answer = await submit(direct)
    assert answer.status_code == 202, answer.text
    job_id = answer.json()["job_id"]
    ref = f"task:payload:{job_id}"
    sent = json.loads(redis.get(ref))
    assert {name: sent[name] for name in ("schema_version", "encoding", "content_type")} == {
        "schema_version": 1,
        "encoding": "base64",
        "content_type": "application/json",
    }
    task = json.loads(base64.b64decode(sent["task_data_b64"]))
    assert (task["job_id"], task["problem_id"], task["language"]) == (job_id, "echo", "python")
    assert list(task["sources"].values()) == [PROGRAM["code"]]
    assert 3500 < redis.ttl(ref) <= 3600
    [(entry_id, fields)] = redis.xrange("deepoj:jobs")
    assert set(fields) == {"job_id", "enqueue_ts", "payload_ref", "priority"}
    assert (fields["job_id"], fields["payload_ref"], fields["priority"]) == (str(job_id), ref, "1")
    event: LiteralString = "select status, stream_entry_id from fencepost.outbox_events"
    assert rows(database, event) == [("delivered", entry_id)]


async def test_a_repeat_writes_no_second_entry(direct: JudgeEnv, redis: Any) -> None:
    first, again = await submit(direct), await submit(direct)
    assert first.json() == again.json()
    assert redis.xlen("deepoj:jobs") == 1


async def test_a_failed_entry_leaves_nothing_and_the_same_request_may_be_made_again(
    direct: JudgeEnv, database: Database, redis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        break_dispatch(patch)
        failed = await submit(direct)
    assert failed.status_code == 503
    assert failed.json()["code"] == "unavailable"
    assert redis.keys("task:payload:*") == []
    assert rows(database, LEFT) == [(0,)]
    answer = await submit(direct)
    assert answer.status_code == 202
    assert redis.xlen("deepoj:jobs") == 1
    assert rows(database, "select job_id from fencepost.judge_submission") == [(answer.json()["job_id"],)]


async def test_without_a_payload_there_is_no_entry(
    direct: JudgeEnv, database: Database, redis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: Any, **__: Any) -> Any:
        raise RedisConnectionError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(Redis, "set", fail)
        assert (await submit(direct)).status_code == 503
    assert redis.keys("*") == []
    assert rows(database, LEFT) == [(0,)]


async def test_without_redis_the_submission_fails(database: Database, tmp_path: Path) -> None:
    nowhere = "redis://127.0.0.1:1/0"
    async with open_office(database, tmp_path, redis_url=nowhere, direct=DIRECT) as office:
        await office.add("ann", JudgeRole.CONTESTANT)
        assert (await submit(office)).status_code == 503
    assert rows(database, LEFT) == [(0,)]


async def test_a_submission_that_is_dispatched_already_was_submitted(
    direct: JudgeEnv, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dispatcher was faster, and then our own entry could not be written: it is judged, so no error."""

    async def fail(_: Any, __: str, ___: int, job_ids: list[int], ____: int) -> Any:
        await direct.fp.run(kernel_job.dispatched(job_ids, ["1-0"], "life"))
        raise RedisConnectionError("gone")

    monkeypatch.setattr(Streams, "dispatch", fail)
    assert (await submit(direct)).status_code == 202
    assert rows(database, "select state from fencepost.jobs") == [("dispatched",)]
    assert rows(database, "select count(*) from fencepost.judge_submission") == [(1,)]


async def test_what_a_full_stream_does_not_take_is_submitted(
    direct: JudgeEnv, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error would make the caller submit again what is judged."""

    async def full(*_: Any) -> Dispatched:
        return Dispatched("life", [])

    monkeypatch.setattr(Streams, "dispatch", full)
    assert (await submit(direct)).status_code == 202
    assert rows(database, "select state from fencepost.jobs") == [("pending",)]


async def test_an_entry_that_could_not_be_recorded_is_no_failure(
    direct: JudgeEnv, database: Database, redis: Any
) -> None:
    with database.connect_admin() as admin:
        admin.execute(
            "alter function fencepost.job_dispatched rename to kept;"
            " create function fencepost.job_dispatched(bigint[], text[], text) returns bigint"
            " language plpgsql"
            " as $$ begin raise exception 'no room on the device' using errcode = '53100'; end $$"
        )
    assert (await submit(direct)).status_code == 202
    assert redis.xlen("deepoj:jobs") == 1
    assert rows(database, "select state from fencepost.jobs") == [("pending",)]


async def test_a_submission_that_could_not_be_taken_back_is_no_plain_error(
    direct: JudgeEnv, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: Any) -> Any:
        with database.connect_admin() as admin:
            admin.execute("drop function fencepost.judge_withdraw")
        raise RedisConnectionError("gone")

    monkeypatch.setattr(Streams, "dispatch", fail)
    answer = await submit(direct)
    assert (answer.status_code, answer.json()["code"]) == (503, "indeterminate")
    assert rows(database, "select state from fencepost.jobs") == [("pending",)]


async def test_withdrawing_frees_no_key_of_another_request(direct: JudgeEnv, database: Database) -> None:
    job_id = (await submit(direct, "kept")).json()["job_id"]
    async with direct.fp.transaction() as tx:
        await tx.claim("shop", "paid")
    with pytest.raises(Refusal, match="mismatch"):
        await direct.fp.run(judge_calls.withdraw(job_id, "test", "judge:ann", "kept"))
    await direct.fp.run(kernel_job.recall([job_id], [entry_of(database)]))
    await direct.fp.run(judge_calls.withdraw(job_id, "test", "shop", "paid"))
    assert rows(database, "select scope, key from fencepost.idempotency_key order by scope") == [
        ("judge:ann", "kept"),
        ("shop", "paid"),
    ]
    other = await direct.fp.run(kernel_job.submit("mail", "welcome", {}))
    with pytest.raises(Refusal, match="not_found"):
        await direct.fp.run(judge_calls.withdraw(other.job_id, "test", "judge:ann", "kept"))


def entry_of(database: Database) -> str:
    return str(rows(database, "select entry_id from fencepost.job_waiting")[0][0])


async def test_a_rejudging_goes_through_the_outbox(direct: JudgeEnv, database: Database, redis: Any) -> None:
    job_id = (await submit(direct)).json()["job_id"]
    await direct.judging.rejudge(Filter(submissions=[job_id]), reason="test", actor="test")
    assert redis.xlen("deepoj:jobs") == 1
    assert sorted(rows(database, "select state from fencepost.jobs")) == [("dispatched",), ("pending",)]


class JudgeOfAll:
    """Finds every program right."""

    languages: ClassVar[dict[str, Any]] = {"python": None}

    async def judge(self, *_: Any, **__: Any) -> Judgement:
        return Judgement(verdict="AC", message="")


async def test_a_worker_judges_it_once_and_leaves_no_payload_behind(
    direct: JudgeEnv, database: Database, redis: Any
) -> None:
    direct.judging._judge = cast("Any", JudgeOfAll())  # pyright: ignore[reportPrivateUsage]
    job_id = (await submit(direct)).json()["job_id"]
    assert redis.keys("task:payload:*") == [f"task:payload:{job_id}"]
    offers = needs_of(["python"])["needs"]
    worker = direct.fp.jobs.worker(direct.judging.job_settings, queues=["judge"], offers=offers)
    working = asyncio.create_task(worker.run())
    try:
        await until(
            "no payload and no entry is left",
            lambda: not redis.keys("task:payload:*") and not redis.xlen("deepoj:jobs"),
        )
    finally:
        worker.stop()
        await working
    assert rows(database, "select attempt, final_status from fencepost.jobs") == [(1, "AC")]


def test_without_a_redis_url_the_direct_path_is_refused(tmp_path: Path) -> None:
    fp = Fencepost("postgresql://localhost/nowhere")
    with pytest.raises(SettingsError, match="OUTBOX_ENABLED is false, and REDIS_URL is not set"):
        Judging(fp, JudgeSettings(store=tmp_path), direct_settings=DIRECT)


async def test_with_the_outbox_nothing_is_written_to_redis(
    database: Database, tmp_path: Path, redis_url: str, redis: Any
) -> None:
    async with open_office(database, tmp_path, redis_url=redis_url, direct=DirectPathSettings()) as office:
        await office.add("ann", JudgeRole.CONTESTANT)
        assert (await submit(office)).status_code == 202
    assert rows(database, "select status from fencepost.outbox_events") == [("pending",)]
    assert redis.keys("*") == []


def test_the_envelope_is_what_readers_of_the_stream_know() -> None:
    assert json.loads(base64.b64decode(json.loads(envelope({"text": "grün"}))["task_data_b64"])) == {
        "text": "grün"
    }
