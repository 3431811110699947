"""A box whose start is cancelled is started whole and then ended: a killed one would leave its cgroups."""

import asyncio
import os
import shutil
import sys
import time
from pathlib import Path

import pytest

from fencepost_judge.sandbox import _box_binary as box_binary
from fencepost_judge.sandbox._agent import Agent
from fencepost_judge.sandbox._box_process import start_box
from tests.integration.judge.env import JudgingEnv

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="the boxes need a C compiler: install gcc")

HEAD_START_SECONDS = 0.05


def cgroups() -> set[Path]:
    return set(Path("/sys/fs/cgroup").rglob("fencepost-box-*"))


def own_cgroups() -> set[Path]:
    """Those of boxes that this process has started: other tests run at the same time."""
    return {folder for folder in cgroups() if _parent_of(int(folder.name.split("-")[3])) == os.getpid()}


def _parent_of(pid: int) -> int | None:
    try:
        # The name of the program stands in brackets and may hold anything.
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return None


async def let_it_begin() -> None:
    """The process is there and goes on, and the loop has not looked at it since."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    time.sleep(HEAD_START_SECONDS)  # noqa: ASYNC251 - The loop is to be late.


async def test_an_agent_whose_start_is_cancelled_leaves_no_cgroup(tmp_path: Path) -> None:
    before = own_cgroups()
    agent = Agent(box_binary.find(), JudgingEnv(tmp_path).site)
    starting = asyncio.create_task(agent.start())
    await let_it_begin()
    made = own_cgroups() - before
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting

    assert made & cgroups() == set()
    assert (agent.is_open, agent.pid) == (False, None)


async def test_a_caller_that_is_cancelled_at_a_start_has_the_process_and_is_so_at_the_next_wait() -> None:
    seen: list[int] = []

    async def begin() -> None:
        process = await start_box(sys.executable, "-c", "import sys; sys.exit(7)")
        try:
            await asyncio.Event().wait()
        finally:
            seen.append(await process.wait())

    beginning = asyncio.create_task(begin())
    await asyncio.sleep(0)
    beginning.cancel()
    with pytest.raises(asyncio.CancelledError):
        await beginning

    assert seen == [7]


async def test_a_start_that_takes_too_long_for_its_caller_is_the_callers_timeout() -> None:
    async def begin() -> None:
        async with asyncio.timeout(0):
            process = await start_box(sys.executable, "-c", "pass")
            try:
                await asyncio.Event().wait()
            finally:
                await process.wait()

    with pytest.raises(TimeoutError):
        await begin()


async def test_a_program_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await start_box(tmp_path / "nothing")
