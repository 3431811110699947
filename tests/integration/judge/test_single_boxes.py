"""A box for one run, as a command: what it finds on the machine, and what it says when it cannot be made."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fencepost.cli.findings import FindingState
from fencepost.cli.probes.machine import ThisMachine
from fencepost_judge.sandbox import _box_binary as box_binary
from fencepost_judge.sandbox._doctor_probe import cgroup_mounts, probe_cgroups
from fencepost_judge.sandbox._run_spec import RunSpec
from tests.integration.judge.env import LIBRARIES, QUICK, JudgingEnv
from tests.waiting_for import until

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="the boxes need a C compiler: install gcc")
ORDER = RunSpec(args=["/app/true"], limits=QUICK, roots=LIBRARIES, binds={"app": "/app"})


@pytest.fixture
def env(tmp_path: Path) -> JudgingEnv:
    env = JudgingEnv(tmp_path)
    shutil.copy("/bin/true", env.workspace / "app/true")
    return env


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_a_place_with_a_space_in_its_name_is_found(tmp_path: Path) -> None:
    """/proc writes it as \\040, and the last mount of a hierarchy is the one that is taken."""
    outside = json.loads(subprocess.run([box_binary.find(), "probe"], capture_output=True, check=True).stdout)
    place = tmp_path / "a place"
    place.mkdir()
    script = 'mount --rbind /sys/fs/cgroup "$1" && exec "$0" probe'
    inside = json.loads(
        subprocess.run(
            ["unshare", "--mount", "sh", "-c", script, box_binary.find(), place],
            capture_output=True,
            check=True,
        ).stdout
    )

    assert inside == outside


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can unmount")
def test_it_says_which_kind_of_cgroups_there_is() -> None:
    """As doctor does."""
    mounted = cgroup_mounts(Path("/proc/mounts").read_text())
    given = probe_cgroups(ThisMachine()).state is FindingState.OK
    v1, v2 = given and "memory" in mounted, given and "v2" in mounted

    def found(before: str) -> str:
        command = ["unshare", "--mount", "sh", "-c", f'{before}; exec "$0" probe', str(box_binary.find())]
        return str(json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["cgroup"])

    assert found("true") == ("hybrid" if v1 and v2 else "v1" if v1 else "v2" if v2 else "none")
    assert found("umount --all --types cgroup2") == ("v1" if v1 else "none")
    assert found("umount --all --types cgroup,cgroup2") == "none"


def test_a_stingy_mask_of_the_judge_closes_nothing_in_the_box(env: JudgingEnv) -> None:
    words = [*ORDER.words(), *env.site.words(), "fd1=2"]
    done = subprocess.run([box_binary.find(), "run", *words], capture_output=True, check=True, umask=0o077)

    assert b'"verdict":"OK"' in done.stdout


def test_a_single_box_says_why_it_could_not_be_made(env: JudgingEnv) -> None:
    order = replace(ORDER, binds={"missing": "/app"})
    done = subprocess.run(
        [box_binary.find(), "run", *order.words(), *env.site.words(), "fd1=2"],
        capture_output=True,
        check=False,
    )

    assert json.loads(done.stdout)["sandbox_error"] == "bind: No such file or directory"


@pytest.mark.parametrize("link", ["app/out", "out"])
def test_a_single_box_follows_no_link_out_of_the_workspace(env: JudgingEnv, link: str) -> None:
    (env.workspace / link).symlink_to("/etc")
    order = replace(ORDER, binds={link: "/app"})
    done = subprocess.run(
        [box_binary.find(), "run", *order.words(), *env.site.words(), "fd1=2"],
        capture_output=True,
        check=False,
    )

    assert json.loads(done.stdout)["sandbox_error"].startswith("bind: ")


def test_a_program_in_a_single_box_has_a_user_namespace_of_its_own(env: JudgingEnv) -> None:
    """If a resident box has one: root has a way on without, which must not be taken in silence."""
    shutil.copy("/bin/cat", env.workspace / "app/cat")
    order = replace(ORDER, args=["/app/cat", "/proc/self/uid_map"], proc=True)
    words = [*order.words(), *env.site.words(), "fd1=2"]
    done = subprocess.run([box_binary.find(), "run", *words], capture_output=True, check=True)
    probe = subprocess.run([box_binary.find(), "probe"], capture_output=True, check=True)
    outside = os.geteuid() or env.site.outer_uid

    expected = ["1000", str(outside), "1"] if json.loads(probe.stdout)["user_namespace"] else ["0", "0"]
    assert done.stderr.decode().split()[: len(expected)] == expected


LAST_PARENT = """
import ctypes, os, subprocess, sys
PR_SET_CHILD_SUBREAPER = 36
ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
sys.stdout.write(subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, text=True).stdout)
sys.stdout.flush()
try:
    os.waitpid(-1, 0)
except ChildProcessError:
    sys.exit(0)
sys.exit("a process was left to us")
"""


@pytest.mark.parametrize(
    ("change", "said"),
    [({}, '"verdict":"OK"'), ({"binds": {"missing": "/app"}}, "bind: "), ({"args": ["/app/no"]}, "exec: ")],
)
def test_a_single_box_leaves_no_process_behind(env: JudgingEnv, change: dict[str, Any], said: str) -> None:
    """In a container no process may reap what is left: also where it could not be made, they end first."""
    words = [*replace(ORDER, **change).words(), *env.site.words(), "fd1=2"]
    for _ in range(5):
        done = subprocess.run(
            [sys.executable, "-c", LAST_PARENT, box_binary.find(), "run", *words],
            capture_output=True,
            text=True,
            check=False,
        )

        assert done.returncode == 0, done.stderr
        assert said in done.stdout


async def test_a_single_box_is_seen_to_its_end_when_its_run_is_cancelled(env: JudgingEnv) -> None:
    """The caller may close its loop at once, and nothing would be left to reap it."""
    pid = env.folder / "pid"
    slow = env.script(f"[ $1 = run ] && echo $$ >{pid}.new && mv {pid}.new {pid} && sleep 0.5")
    async with env.boxes(slots=1, agents=False, box_program=slow) as boxes:
        run = asyncio.create_task(env.run(boxes, ["/app/true"]))
        await until("it runs", pid.exists)
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)

        with pytest.raises(ProcessLookupError):
            os.kill(int(pid.read_text()), 0)


@pytest.mark.parametrize("agents", [True, False], ids=["resident", "single"])
async def test_a_box_runs_on_the_processor_that_it_is_pinned_to(env: JudgingEnv, agents: bool) -> None:
    """Asked of the kernel by the program itself: how many processors it may use."""
    nproc = shutil.which("nproc")
    usable = sorted(os.sched_getaffinity(0))
    if nproc is None or len(usable) < 2:
        pytest.skip("needs nproc and two processors")
    shutil.copy(nproc, env.workspace / "app/nproc")
    async with env.boxes(agents=agents, cores=usable[1:2]) as pinned, env.boxes(agents=agents) as free:
        one = await env.run(pinned, ["/app/nproc"])
        all_of_them = await env.run(free, ["/app/nproc"])
        elsewhere = await env.run(free, ["/app/nproc"], core=1000)

    assert (one.stdout, all_of_them.stdout) == (b"1\n", b"%d\n" % len(usable))
    # A processor that is not there is the judge's fault, never a verdict.
    assert elsewhere.outcome.verdict == "SE"
    assert "core" in elsewhere.outcome.sandbox_error
