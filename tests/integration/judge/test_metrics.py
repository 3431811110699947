"""What a judge counts, in a run in which it happens."""

import shutil
from pathlib import Path

import pytest

from fencepost.embedded import Database
from fencepost.metrics import Metrics
from fencepost_judge._metrics import JudgeMetrics
from fencepost_judge._rejudging import Filter
from tests.integration.judge.judge_env import PROGRAM, JudgeEnv, open_office
from tests.waiting_for import until


def verdict_seconds(office: JudgeEnv, end: str) -> float:
    return office.fp.metrics.value(f"fencepost_judge_verdict_seconds_{end}")


async def until_judged(office: JudgeEnv, many: int) -> None:
    name = "fencepost_judge_verdicts_total"
    await until("the verdict is counted", lambda: office.fp.metrics.value(name, verdict="AC") == many)


@pytest.mark.skipif(shutil.which("cc") is None, reason="the boxes need a C compiler: install gcc")
async def test_how_long_a_verdict_takes_and_that_a_rejudging_does_not_count(
    database: Database, tmp_path: Path
) -> None:
    async with (
        open_office(database, tmp_path, slots=2) as office,
        office.judging.working(),
    ):
        await office.judging.submit("echo", "python", {"main.py": PROGRAM["code"]}, author="ann")
        await until_judged(office, 1)
        assert verdict_seconds(office, "count") == 1
        assert 0 < verdict_seconds(office, "sum") < 3600
        # The write is a part of that, and is measured alone.
        write = [office.fp.metrics.value(f"fencepost_judge_finish_seconds_{end}") for end in ("count", "sum")]
        assert write[0] == 1
        assert 0 < write[1] < verdict_seconds(office, "sum")
        # It waits behind everything: how long says nothing about a contest.
        await office.judging.rejudge(Filter(problem="echo"), reason="test 7 was wrong", actor="jo")
        await until_judged(office, 2)
        assert verdict_seconds(office, "count") == 1


def test_the_first_system_error_is_an_increase() -> None:
    """Prometheus sees an increase only from a sample before it."""
    metrics = Metrics()
    JudgeMetrics.on(metrics)
    assert 'fencepost_judge_verdicts_total{verdict="SE"} 0.0' in metrics.page().body.decode()
