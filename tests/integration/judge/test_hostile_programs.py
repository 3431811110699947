"""Hostile programs: each gets the right verdict, none gets out, nothing of them is left."""

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from fencepost_judge.sandbox._probing import probe_machine
from tests.integration.judge.env import QUICK, JudgingEnv, Ran, mounts
from tests.integration.judge.hostile_programs import Expected, compile_zoo, expectations, names
from tests.waiting_for import until

pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="the boxes need a C compiler: install gcc"),
    pytest.mark.xdist_group("judge_zoo"),
]

WITHOUT_A_CGROUP = {
    # Memory that belongs to no process could not be seen there: it is refused, as the probe says.
    "memory_memfd": Expected("OK", 0),
}
# What the kernel holds for forks that it refuses is counted too, until it gets round to freeing it: with
# little memory it may be that which ends a bomb. With more of it than 0.2 s of forks can hold, it is time.
ROOMY = {"fork_bomb": QUICK.with_(memory_kb=1 << 20)}


@dataclass(frozen=True)
class Visit:
    """All programs, each run once in one of two resident boxes."""

    ran: dict[str, Ran]
    expected: dict[str, Expected]
    processes_left: list[str]
    mounts_added: set[str]
    files_left: list[str]
    fallbacks: float
    retries: float


SINGLE = [
    *("who_am_i", "fork_until_refused", "memory_malloc", "memory_memfd", "output_stdout", "dies_abort"),
    *("daemon_that_ignores", "link_in_output", "unreadable_in_output", "many_outputs", "store_is_empty"),
    *("no_descriptor_leaks", "socket_vsock", "call_unshare_user", "call_limit_init", "read_init_environ"),
    *("disk_inodes", "time_sleep", "proc_shows_no_host_path", "proc_of_others_shows_no_host_path"),
]
"""What a box for one run is shown without --full: it is built otherwise, and holds by the same means."""


@pytest.fixture(scope="module")
def visit() -> Iterator[Visit]:
    yield from _visited(names(), agents=True)


@pytest.fixture(scope="module")
def single_visit(request: pytest.FixtureRequest) -> Iterator[Visit]:
    yield from _visited(names() if request.config.getoption("--full") else SINGLE, agents=False)


def _visited(chosen: list[str], *, agents: bool) -> Iterator[Visit]:
    folder = Path(tempfile.mkdtemp(prefix="fencepost-zoo-"))
    try:
        yield asyncio.run(_visit(folder, chosen, agents=agents))
    finally:
        shutil.rmtree(folder)


async def _visit(folder: Path, chosen: list[str], *, agents: bool) -> Visit:
    env = JudgingEnv(folder)
    compile_zoo(env.workspace / "app/zoo")
    before = mounts()
    places = asyncio.Semaphore(2)

    async def one(name: str) -> Ran:
        async with places:
            limits = ROOMY.get(name, QUICK)
            out = env.new_folder()
            return await env.run(boxes, ["/app/zoo", name], limits=limits, out=out, proc=True)

    grouped = (await asyncio.to_thread(probe_machine)).facts["cgroup"] != "none"
    async with env.boxes(slots=2, agents=agents) as boxes:
        ran = dict(zip(chosen, await asyncio.gather(*map(one, chosen)), strict=True))
        # The answer comes before the end of the namespace.
        with suppress(TimeoutError):
            await until("nothing runs in a box", lambda: not env.processes())
        left = env.processes()
    # And when they are closed, no process waits there for another.
    with suppress(TimeoutError):
        await until("no process is in a box", lambda: not env.processes(ours=True))
    left += env.processes(ours=True)
    return Visit(
        ran,
        {**expectations(env.workspace / "app/zoo"), **({} if grouped else WITHOUT_A_CGROUP)},
        left,
        mounts() - before,
        [str(path) for path in (env.workspace / "app").iterdir() if path.name != "zoo"],
        env.counted("fencepost_judge_agent_failures_total", {"reason": "lost"}),
        env.counted("fencepost_judge_sandbox_retries_total"),
    )


@pytest.mark.parametrize("name", names())
def test_the_program_gets_its_verdict_and_stays_inside(visit: Visit, name: str) -> None:
    _check(visit, name)


def test_a_box_for_one_run_holds_them_as_well_and_leaves_nothing(single_visit: Visit) -> None:
    for name in single_visit.ran:
        _check(single_visit, name)
    test_nothing_is_left_of_them(single_visit)
    test_none_of_them_broke_an_agent_or_needed_a_second_try(single_visit)


def _check(visit: Visit, name: str) -> None:
    ran, expected = visit.ran[name], visit.expected[name]

    assert b"ESCAPED" not in ran.stdout
    assert ran.outcome.verdict == expected.verdict, (name, ran.outcome)
    if expected.signal >= 0:
        assert ran.outcome.exit_signal == expected.signal, (name, ran.outcome)
    if expected.verdict == "OK" and expected.signal == 0:
        assert ran.stdout.startswith(b"held\n"), (name, ran)


def test_there_are_at_least_300_and_the_list_in_the_sources_is_whole(visit: Visit) -> None:
    assert len(names()) >= 300
    assert set(names()) == set(visit.expected)


def test_nothing_is_left_of_them(visit: Visit) -> None:
    assert visit.processes_left == []
    assert visit.mounts_added == set()
    assert visit.files_left == []


def test_none_of_them_broke_an_agent_or_needed_a_second_try(visit: Visit) -> None:
    assert (visit.fallbacks, visit.retries) == (0, 0)
