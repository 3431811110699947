"""Test data that cannot be reached is waited for, for as long as the setting says, and no longer."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fencepost.embedded import Database
from fencepost.testing import Clock
from fencepost_judge._role import OPERATOR
from fencepost_judge._service import Judging
from fencepost_judge._settings import JudgeSettings
from fencepost_judge._store import Store, StoreUnavailable
from fencepost_judge._visibility import as_json
from tests.acceptance.judge.judge_workers import open_judging
from tests.acceptance.judge.test_judged_once import RIGHT
from tests.waiting_for import found

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="the boxes need a C compiler: install gcc")
STEP_SECONDS = 20


class Bucket:
    """A store behind which the network can be cut."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_away = False
        self.asked = 0
        get = Store.get

        def cut(store: Store, digest: str) -> bytes:
            if self.is_away:
                self.asked += 1
                raise StoreUnavailable("JUDGE_STORE s3://data cannot be reached: http://10.1.2.3:9000")
            return get(store, digest)

        monkeypatch.setattr(Store, "get", cut)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Bucket:
    return Bucket(monkeypatch)


def looking(judging: Judging, clock: Clock, job_id: int, waited: list[float]) -> Callable[[], Any]:
    """Look, and let time pass while it waits; never through a lease: not while it runs."""

    async def look() -> dict[str, Any]:
        seen = as_json(await judging.standing(job_id), OPERATOR)
        if seen["status"] not in ("RUNNING", "FINISHED"):
            clock.advance(STEP_SECONDS)
            waited.append(STEP_SECONDS)
        return seen

    return look


async def test_a_bucket_that_is_away_is_waited_for(
    database: Database, redis_url: str, tmp_path: Path, clock: Clock, bucket: Bucket
) -> None:
    waited: list[float] = []
    async with open_judging(database.url, redis_url, tmp_path, "one") as judging:
        job_id = await judging.submit("fence-posts", "python", RIGHT, author="ann")
        bucket.is_away = True
        look = looking(judging, clock, job_id, waited)
        # Far more often than a fault of another kind is tried.
        await found("it was asked for often", look, lambda seen: bucket.asked > JudgeSettings().tries * 3)
        bucket.is_away = False
        got = await found("it is judged", look, lambda seen: seen["status"] == "FINISHED")

    assert sum(waited) > 60
    assert judging.fp.metrics.value("fencepost_judge_store_waits_total") == bucket.asked
    assert (got["result"]["verdict"], got["final_status"]) == ("AC", "AC")


async def test_a_bucket_that_stays_away_is_given_up_after_the_limit_and_not_before(
    database: Database, redis_url: str, tmp_path: Path, clock: Clock, bucket: Bucket
) -> None:
    waited: list[float] = []
    async with open_judging(database.url, redis_url, tmp_path, "one", store_wait_minutes=5) as judging:
        job_id = await judging.submit("fence-posts", "python", RIGHT, author="ann")
        bucket.is_away = True
        look = looking(judging, clock, job_id, waited)
        got = await found("it is given up", look, lambda seen: seen["status"] == "FINISHED")

    assert sum(waited) >= 300
    assert (got["result"]["verdict"], got["final_status"]) == ("SE", "SANDBOX_ERROR")
    assert "10.1.2.3" not in str(got)
