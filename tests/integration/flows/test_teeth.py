"""Planted bugs: the tests of this folder must see each of them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fencepost.flows import Flow, SourceTrimmed
from fencepost.flows import _state as state
from fencepost.flows._task import Task
from fencepost.flows.sinks import redis as redis_sinks
from fencepost.flows.sinks.files import JsonLines
from fencepost.flows.sinks.postgres import PostgresRows
from fencepost.flows.sinks.redis import RedisSink
from fencepost.flows.sources.redis_streams import RedisStreams
from fencepost.testing import PlannedCrash, crash_at
from fencepost.testing import _flow_sinks as flow_sinks
from fencepost.testing._flow_sinks import SinkBroken, check_sink
from tests.integration.flows.harness import FlowHarness


async def test_skipping_a_durable_checkpoint_that_is_not_flagged_loses_its_effects(
    harness: FlowHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def skipped(*_: Any) -> None: ...

    monkeypatch.setattr(JsonLines, "recover_and_commit", skipped)

    async def effects() -> Sequence[int]:
        return _lines(tmp_path)

    with pytest.raises(SinkBroken, match="lost"):
        await check_sink(
            harness.fp, lambda: JsonLines(tmp_path), effects, points=["flows.commit.after_store"]
        )


async def test_a_script_without_its_frontier_check_doubles(
    harness: FlowHarness, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = (Path(redis_sinks.__file__).parent / "take.lua").read_text()
    _write(tmp_path / "take.lua", script.replace("number <= held", "false"))
    monkeypatch.setattr(redis_sinks, "_FOLDER", tmp_path)
    client: Any = harness.redis

    async def effects() -> list[int]:
        return [int(value) for value in client.lrange("out", 0, -1)]

    with pytest.raises(SinkBroken, match="doubled"):
        await check_sink(
            harness.fp,
            lambda: RedisSink("list", "out"),
            effects,
            redis_url=harness.redis_url,
            points=["flows.commit.before_flag"],
        )


async def test_acknowledging_before_the_commit_is_found_when_the_flow_starts_again(
    harness: FlowHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = Task._commit  # pyright: ignore[reportPrivateUsage]

    async def hasty(task: Any) -> None:
        await task._input.acknowledge(task._frontier)
        await honest(task)

    monkeypatch.setattr(Task, "_commit", hasty)
    flow = Flow("hasty").source(RedisStreams("a", trim=True)).json().sink(PostgresRows("line", ["value"]))
    for n in range(300):
        harness.redis.xadd("a", {"data": str(n)})
    with pytest.raises(PlannedCrash), crash_at("flows.commit.before_fence", nth=2):
        await harness.worker(flow, records_max=50, batch=50).run()

    with pytest.raises(SourceTrimmed):
        await harness.worker(flow).run()


def _lines(folder: Path) -> list[int]:
    return [int(line) for file in folder.glob("*.jsonl") for line in file.read_text().split()]


def _write(path: Path, text: str) -> None:
    path.write_text(text)


async def test_values_that_come_back_as_something_else_are_found(
    harness: FlowHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a checkpoint was that had plain data only: a tuple came back as a list."""

    async def effects() -> list[int]:
        client: Any = harness.redis
        return [int(value) for value in client.lrange("out", 0, -1)]

    def plain(part: Any, **_: Any) -> msgspec.Raw:
        return msgspec.Raw(msgspec.msgpack.encode(part, enc_hook=str))

    monkeypatch.setattr(state, "stored", plain)
    monkeypatch.setattr(flow_sinks, "CARRIERS", flow_sinks.CARRIERS[:2])

    with pytest.raises(SinkBroken, match=r"came to the sink as \[\d+, \['inner'\]\]"):
        await check_sink(
            harness.fp,
            lambda: RedisSink("list", "out"),
            effects,
            redis_url=harness.redis_url,
            points=["flows.commit.after_store"],
        )
