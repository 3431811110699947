"""A submission can be followed in the log: claimed, executed, written, with the names of its job."""

import io
import json
import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from fencepost.embedded import Database
from fencepost.logs import configure_logging
from fencepost_judge.sandbox._sandbox_pool import SandboxPool
from tests.integration.judge.judge_env import PROGRAM, open_office

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="the boxes need a C compiler: install gcc")
Lines = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def lines() -> Iterator[Lines]:
    """What a judge writes, line by line."""
    root, shown = logging.getLogger(), io.StringIO()
    before = (root.handlers, root.level)
    configure_logging(level="info", form="json", stream=shown)
    yield lambda: [json.loads(line) for line in shown.getvalue().splitlines()]
    root.handlers, root.level = before
    structlog.reset_defaults()


async def test_claim_execution_verdict_and_write_back_are_in_the_log(
    database: Database, tmp_path: Path, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = SandboxPool._counted  # pyright: ignore[reportPrivateUsage]

    async def noisy(self: SandboxPool, *given: Any) -> Any:
        structlog.get_logger().warning("from the sandbox")
        return await counted(self, *given)

    monkeypatch.setattr(SandboxPool, "_counted", noisy)
    async with (
        open_office(database, tmp_path, slots=2) as office,
        office.judging.working(),
    ):
        sources = {"main.py": PROGRAM["code"]}
        job_id = await office.judging.submit("echo", "python", sources, author="ann")
        await office.fp.jobs.result(job_id, within=120)
    ours = [line for line in lines() if line.get("job_id") == job_id]
    story = [line for line in ours if line["event"].startswith("judge_")]
    assert [line["event"] for line in story] == [
        "judge_claimed",
        "judge_compiled",
        "judge_executed",
        "judge_written",
    ]
    for line in story[:1] + story[2:]:
        assert (type(line["job_id"]), line["attempt"], line["try"]) == (int, 1, 1)
    claimed, compiled, executed, written = story
    assert (compiled["language"], compiled["compiled"], compiled["attempt"]) == ("python", True, 1)
    assert (claimed["problem"], claimed["language"]) == ("echo", "python")
    assert (executed["verdict"], executed["tests"]) == ("AC", 1)
    assert executed["seconds"] > 0
    assert (written["verdict"], written["final_status"]) == ("AC", "AC")
    assert "from the sandbox" in {line["event"] for line in ours}, "a box logs the names of its job"
    assert len({line["trace_id"] for line in ours}) == 1
