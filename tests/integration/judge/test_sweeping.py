"""What a killed judge leaves in the cgroup tree, and who removes it."""

# ruff: noqa: ASYNC220, ASYNC221  The processes are what is watched; nothing else runs in the loop.

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from fencepost_judge.sandbox import _box_binary as box_binary
from fencepost_judge.sandbox._agent import Agent
from tests.integration.judge.env import JudgingEnv, cgroups_of

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="the boxes need a C compiler: install gcc")


async def test_a_sweep_waits_for_the_end_of_what_it_kills(tmp_path: Path) -> None:
    agent = Agent(box_binary.find(), JudgingEnv(tmp_path).site)
    await agent.start()
    pid = agent.pid
    assert pid is not None
    survivors = [(folder, subprocess.Popen(["sleep", "600"])) for folder in cgroups_of(pid)]
    for folder, survivor in survivors:
        (folder / "cgroup.procs").write_text(str(survivor.pid))
    os.kill(pid, signal.SIGKILL)
    await agent.close()

    subprocess.run([box_binary.find(), "sweep"], check=True)

    assert cgroups_of(pid) == []
    assert [survivor.wait() for _folder, survivor in survivors] == [-signal.SIGKILL] * len(survivors)
