"""Boxes: resident ones and single ones, what happens when they fail, and what a killed one leaves."""

# ruff: noqa: ASYNC220, ASYNC221  The processes are what is watched; nothing else runs in the loop.

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost.testing import Signals
from fencepost_judge._protocol import Verdict
from fencepost_judge.sandbox import _box_binary as box_binary
from fencepost_judge.sandbox._agent import Agent
from fencepost_judge.sandbox._box_files import BoxFiles, nothing_and_nowhere
from fencepost_judge.sandbox._run_spec import Limits, RunSpec
from tests.integration.judge.env import LIBRARIES, QUICK, JudgingEnv, Ran, cgroups_of
from tests.integration.judge.hostile_programs import compile_zoo
from tests.waiting_for import until

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="the boxes need a C compiler: install gcc")


@pytest.fixture(scope="session")
def zoo_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("zoo") / "zoo"
    compile_zoo(target)
    return target


@pytest.fixture
def env(tmp_path: Path, zoo_program: Path) -> JudgingEnv:
    env = JudgingEnv(tmp_path)
    shutil.copy(zoo_program, env.workspace / "app/zoo")
    return env


@pytest.fixture
def groupless_env(tmp_path: Path, zoo_program: Path) -> JudgingEnv:
    env = JudgingEnv(tmp_path, cgroup=False)
    shutil.copy(zoo_program, env.workspace / "app/zoo")
    return env


@pytest.fixture
def library() -> Iterator[Path]:
    """A file that boxes are shown. Not in /tmp, where they have a folder of their own."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        library = Path(folder, "library.cache")
        library.write_text("old")
        yield library


@pytest.mark.parametrize("agents", [True, False])
async def test_a_resident_and_a_single_box_say_the_same(env: JudgingEnv, agents: bool) -> None:
    names = {
        "fails": "RE",
        "calls_abort": "RE",
        "time_spin": "TLE",
        "memory_malloc": "MLE",
        "output_stdout": "OLE",
        "who_am_i": "OK",
    }
    async with env.boxes(agents=agents) as boxes:
        said = {name: (await env.run(boxes, ["/app/zoo", name])).outcome.verdict for name in names}

    assert said == names
    assert env.counted("fencepost_judge_sandbox_retries_total") == 0


async def test_an_agent_that_dies_in_a_run_is_replaced_by_a_single_box_and_the_run_is_whole(
    env: JudgingEnv,
) -> None:
    async with env.boxes(slots=1) as boxes, asyncio.TaskGroup() as group:
        await env.run(boxes, ["/app/zoo", "who_am_i"])
        agent = boxes._agents[0]  # pyright: ignore[reportPrivateUsage]
        assert agent.pid is not None
        run = group.create_task(env.run(boxes, ["/app/zoo", "time_sleep"]))
        await until("it runs in a box", lambda: bool(env.processes()))
        os.kill(agent.pid, signal.SIGKILL)
        ran = await run
        again = await env.run(boxes, ["/app/zoo", "who_am_i"])

    assert ran.outcome.verdict is Verdict.TLE
    assert again.outcome.verdict is Verdict.OK
    assert env.counted("fencepost_judge_agent_failures_total", {"reason": "lost"}) == 1
    # The killed agent's box falls by the death of its parents, one after the other.
    await until("nothing runs in a box", lambda: not env.processes())


async def test_a_file_that_an_upgrade_replaced_costs_a_retry_and_no_verdict(
    tmp_path: Path, zoo_program: Path, library: Path
) -> None:
    env = JudgingEnv(tmp_path, roots=[*LIBRARIES, str(library)])
    shutil.copy(zoo_program, env.workspace / "app/zoo")
    async with env.boxes(slots=1) as boxes:
        await env.run(boxes, ["/app/zoo", "who_am_i"])
        os.replace(shutil.copy(library, library.with_name("new")), library)  # noqa: PTH105
        after = [(await env.run(boxes, ["/app/zoo", "who_am_i"])).outcome.verdict for _ in range(2)]

    assert after == [Verdict.OK, Verdict.OK]
    assert env.counted("fencepost_judge_sandbox_retries_total") == 1


async def test_the_death_of_the_supervisor_ends_the_program(env: JudgingEnv) -> None:
    agent = Agent(box_binary.find(), env.site)
    await agent.start()
    pid = agent.pid
    assert pid is not None
    with nothing_and_nowhere() as files:
        order = _order("time_ignores_signals", Limits(cpu_ms=60_000, wall_ms=60_000))
        run = asyncio.create_task(agent.run(order, files))
        await until("it runs in a box", lambda: bool(env.processes()))
        os.kill(pid, signal.SIGKILL)
        await until("no process is in a box", lambda: not env.processes(ours=True))
        await asyncio.gather(run, return_exceptions=True)
    await agent.close()

    # Its cgroups are left, and the next judge removes them.
    subprocess.run([box_binary.find(), "sweep"], check=True)
    assert cgroups_of(pid) == []


async def test_a_judge_that_is_killed_takes_its_boxes_along(env: JudgingEnv) -> None:
    code = f"""
import asyncio, sys
from pathlib import Path
from tests.integration.judge.env import JudgingEnv
stage = JudgingEnv(Path({str(env.folder / "second")!r}), mark={env.mark!r})
import shutil; shutil.copy({str(env.workspace / "app/zoo")!r}, stage.workspace / "app/zoo")
from fencepost_judge.sandbox._run_spec import Limits
async def main():
    async with stage.boxes(slots=1, agents=sys.argv[1] == "agent") as boxes:
        await stage.run(boxes, ["/app/zoo", "time_sleep"], limits=Limits(cpu_ms=60000, wall_ms=60000))
asyncio.run(main())
"""
    for mode in ("agent", "command"):
        (env.folder / "second").mkdir()
        judge = subprocess.Popen([sys.executable, "-c", code, mode], cwd=Path(__file__).parents[3])
        try:
            await until("it runs in a box", lambda: bool(env.processes()))
        finally:
            judge.kill()
            judge.wait()
        await until("no process is in a box", lambda: not env.processes(ours=True))
        shutil.rmtree(env.folder / "second")


async def test_a_cancelled_run_is_ended_and_its_answer_is_not_the_next_runs(env: JudgingEnv) -> None:
    for agents in (True, False):
        async with env.boxes(slots=1, agents=agents) as boxes:
            run = asyncio.create_task(
                env.run(boxes, ["/app/zoo", "time_sleep"], limits=Limits(cpu_ms=60_000, wall_ms=60_000))
            )
            await until("it runs in a box", lambda: bool(env.processes()))
            run.cancel()
            await asyncio.gather(run, return_exceptions=True)
            ran = await env.run(boxes, ["/app/zoo", "fails"])
            await until("nothing runs in a box", lambda: not env.processes())

        assert ran.outcome.exit_code == 3


async def test_what_is_written_is_the_claims_own_attempt(env: JudgingEnv) -> None:
    async with env.boxes(slots=1) as boxes:
        ran = await env.run(boxes, ["/app/zoo", "who_am_i"], job_id='job "7"\n', attempt_id=8)

    assert (ran.outcome.job_id, ran.outcome.attempt_id) == ('job "7"\n', 8)
    assert env.counted("fencepost_judge_foreign_attempts_total") == 0


async def test_another_attempt_in_the_answer_is_counted_and_overridden(env: JudgingEnv) -> None:
    liar = env.script(
        r"""printf '{"schema_version":1,"job_id":"other","attempt_id":99,"verdict":"OK","time_ms":1,"""
        r""""mem_kb":1,"exit_signal":0,"sandbox_error":""}\n'""",
    )
    async with env.boxes(agents=False, box_program=liar) as boxes:
        ran = await env.run(boxes, ["/app/zoo", "who_am_i"], job_id="mine", attempt_id=3)

    assert (ran.outcome.job_id, ran.outcome.attempt_id) == ("mine", 3)
    assert env.counted("fencepost_judge_foreign_attempts_total") == 1


async def test_a_box_that_floods_is_drained_cut_and_not_believed(env: JudgingEnv) -> None:
    flood = env.script("head -c 3000000 /dev/zero; head -c 3000000 /dev/zero >&2")
    async with env.boxes(agents=False, box_program=flood) as boxes:
        async with asyncio.timeout(60):
            ran = await env.run(boxes, ["/app/zoo", "who_am_i"])

    assert ran.outcome.verdict is Verdict.SE
    assert ran.outcome.sandbox_error == "protocol: too_long"
    # A sandbox error is tried again, within bounds.
    assert env.counted("fencepost_judge_protocol_errors_total", {"reason": "too_long"}) == 3
    assert env.counted("fencepost_judge_sandbox_retries_total") == 2
    for stream in ("stdout", "stderr"):
        assert env.counted("fencepost_judge_output_truncated_total", {"stream": stream}) == 3


async def test_an_agent_that_cannot_start_is_a_single_box_and_said(env: JudgingEnv) -> None:
    real = box_binary.find()
    broken = env.script(f'[ "$1" = agent ] && exit 1; exec {real} "$@"')
    with Signals() as signals:
        async with env.boxes(box_program=broken) as boxes:
            ran = await env.run(boxes, ["/app/zoo", "who_am_i"])
        await signals.wait("judge.agent_failed", within=60)

    assert ran.outcome.verdict is Verdict.OK
    assert env.counted("fencepost_judge_agent_failures_total", {"reason": "lost"}) == 1


async def test_without_cgroups_the_same_verdicts_come_from_limits_of_the_process(
    groupless_env: JudgingEnv,
) -> None:
    env = groupless_env
    names = {
        "who_am_i": "OK",
        "time_spin": "TLE",
        "time_children": "TLE",
        "fork_bomb": "TLE",
        "memory_malloc": "MLE",
        "memory_children": "MLE",
        "memory_memfd": "OK",
        "memory_below_the_limit": "OK",
        "memory_shared_by_forks": "OK",
        "memory_reserved_only": "OK",
        "time_sleep": "TLE",
        "fork_until_refused": "OK",
        "output_stdout": "OLE",
        "dies_abort": "RE",
        "daemon_that_ignores": "OK",
    }
    async with env.boxes(slots=1) as boxes:
        said = {name: (await env.run(boxes, ["/app/zoo", name])).outcome.verdict for name in names}
        hello = boxes._agents[0].hello  # pyright: ignore[reportPrivateUsage]

    assert said == names
    assert hello["cgroup"] == "none"
    await until("no process is in a box", lambda: not env.processes(ours=True))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_without_privileges_a_box_is_a_box(zoo_program: Path) -> None:
    # The folders of pytest are root's own.
    with tempfile.TemporaryDirectory(prefix="fencepost-box-") as folder:
        Path(folder).chmod(0o755)
        env = JudgingEnv(Path(folder))
        shutil.copy(zoo_program, env.workspace / "app/zoo")
        box = shutil.copy(box_binary.find(), Path(folder) / "box")
        for name in (
            *("no_descriptor_leaks", "call_unshare_user", "read_init_environ", "call_limit_init"),
            *("proc_shows_no_host_path", "proc_of_others_shows_no_host_path"),
        ):
            words = [*_order(name, QUICK).words(), *env.site.words(), "proc=1", "fd1=2"]
            done = subprocess.run(
                [box, "run", *words],
                capture_output=True,
                user=12_345,
                group=12_345,
                extra_groups=[],
                check=True,
            )

            assert b'"verdict":"OK"' in done.stdout
            assert done.stderr == b"held\n"

        # Modes bind us there as they bind the program; what it left is read all the same.
        out = Path(folder) / "out"
        out.mkdir()
        os.chown(out, 12_345, 12_345)
        words = [
            *_order("unreadable_in_output", QUICK).words(),
            *env.site.words(),
            f"out_dir={out}",
            "fd1=2",
        ]
        done = subprocess.run(
            [box, "run", *words], capture_output=True, user=12_345, group=12_345, extra_groups=[], check=True
        )

        assert b'"verdict":"OK"' in done.stdout, done.stdout
        assert [path.name for path in out.iterdir()] == ["secret"]


async def test_a_busy_machine_makes_no_false_timeout(env: JudgingEnv) -> None:
    """A program that computes while every core is wanted by many others; its first thread computes, or waits
    for a thread or a child that does. The wall limit is half of what it needs here, a fifth of a fault."""
    source = env.workspace / "app/work.c"
    source.write_text(
        "#include <pthread.h>\n#include <sys/wait.h>\n#include <time.h>\n#include <unistd.h>\n"
        "static void *work(void *n){while(clock()<CLOCKS_PER_SEC/5){}return n;}\n"
        "int main(int n, char **v){(void)v;pthread_t t;if(n==1){work(0);return 0;}"
        "if(n==2){pthread_create(&t,0,work,0);pthread_join(t,0);return 0;}"
        "if(!fork()){work(0);_exit(0);}wait(0);return 0;}\n"
    )
    work = env.workspace / "app/work"
    subprocess.run(["cc", "-O1", "-pthread", "-o", work, source], check=True)
    burners = [
        subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(4 * (os.cpu_count() or 1))
    ]
    try:
        async with env.boxes(slots=3) as boxes:

            async def run_all(wall_ms: int) -> list[Ran]:
                limits = Limits(cpu_ms=3000, wall_ms=wall_ms)
                forms = (["/app/work", *["x"] * form] for form in range(3))
                return await asyncio.gather(*(env.run(boxes, words, limits=limits) for words in forms))

            half_ms = min(one.outcome.wall_ms for one in await run_all(60_000)) // 2
            ran = await run_all(half_ms)
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()

    assert [one.outcome.verdict for one in ran] == ["OK"] * 3
    assert max(one.outcome.wall_ms for one in ran) > half_ms, "the machine was not busy"


async def test_two_boxes_talk_over_pipes(env: JudgingEnv) -> None:
    async with env.boxes(slots=2) as boxes:
        first, second = os.pipe(), os.pipe()
        scratch = os.open(env.folder, os.O_TMPFILE | os.O_RDWR, 0o600)
        one = _order("pair_of_sockets_is_fine", QUICK)
        talk = asyncio.gather(
            boxes.run(one, BoxFiles(second[0], first[1], scratch)),
            boxes.run(one, BoxFiles(first[0], second[1], scratch)),
        )
        said = await talk
        for descriptor in (*first, *second, scratch):
            os.close(descriptor)

    assert [outcome.verdict for outcome in said] == ["OK", "OK"]


async def test_cleaning_up_can_be_repeated(env: JudgingEnv) -> None:
    async with env.boxes() as boxes:
        await env.run(boxes, ["/app/zoo", "daemon_in_a_session"])
        agent = boxes._agents[-1]  # pyright: ignore[reportPrivateUsage]
        pid = agent.pid
        await agent.close()
        await agent.close()
    for _ in range(2):
        assert subprocess.run([box_binary.find(), "sweep"], check=False).returncode == 0

    assert pid is not None
    assert cgroups_of(pid) == []


async def test_a_wrong_order_is_refused_by_name(env: JudgingEnv) -> None:
    async with env.boxes(slots=1) as boxes:
        outside = await env.run(boxes, ["/app/zoo", "fails"], env={"x": "y"}, limits=Limits(open_files=1))
        relative = await env.run(boxes, ["zoo"])

    assert outside.outcome.sandbox_error == "order: open_files"
    assert relative.outcome.sandbox_error == "order: arg"


@pytest.mark.full
@pytest.mark.timeout(3600)
async def test_ten_thousand_mixed_runs_leave_nothing_and_get_their_verdicts(env: JudgingEnv) -> None:
    mixed = {
        "who_am_i": "OK",
        "fails": "RE",
        "calls_abort": "RE",
        "orphans": "OK",
        "memory_malloc": "MLE",
        "socket_vsock": "OK",
        "output_stdout": "OLE",
        "daemon_that_ignores": "OK",
        "disk_inodes": "OK",
        "memory_stack": "MLE",
    }
    async with env.boxes(slots=2) as boxes:
        for _ in range(1000):
            names = list(mixed)
            ran = await asyncio.gather(*(env.run(boxes, ["/app/zoo", name]) for name in names))
            assert {n: r.outcome.verdict for n, r in zip(names, ran, strict=True)} == mixed
    await until("no process is in a box", lambda: not env.processes(ours=True))
    assert env.counted("fencepost_judge_sandbox_retries_total") == 0


def _order(name: str, limits: Limits) -> RunSpec:
    return RunSpec(args=["/app/zoo", name], limits=limits, roots=LIBRARIES, binds={"app": "/app"})
