"""A contest: contestants send right, wrong, slow and crashing programs, and the scoreboard moves."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from importlib.resources import as_file, files
from pathlib import Path

from fencepost.cli.demo import DemoContext, DemoPart
from fencepost_judge import _contests as contests
from fencepost_judge._access import PAGES_ROOT
from fencepost_judge._scoreboard import Contest, ContestProblem, Scoring
from fencepost_judge._service import Judging
from fencepost_judge._settings import JudgeSettings

CONTEST = "demo-cup"
PROBLEMS = {"demo-fence-posts": "A", "demo-painted-fence": "B"}
CONTESTANTS = tuple(f"demo-{name}" for name in ("ada", "bob", "cyd", "dan", "eve"))
LANGUAGE = "python"
PROGRAMS = "*.py3"


async def _run(context: DemoContext) -> None:
    judging = Judging(context.fp, JudgeSettings.load())
    programs = await _import_problems(judging)
    now = datetime.now(UTC)
    contest = Contest(
        slug=CONTEST,
        title="Demo cup",
        scoring=Scoring.ICPC,
        starts_at=now - timedelta(minutes=1),
        freeze_at=None,
        ends_at=now + timedelta(hours=12),
        problems=[ContestProblem(label, slug) for slug, label in PROBLEMS.items()],
    )
    await context.fp.run(contests.put_contest(contest, "demo"))
    for name in CONTESTANTS:
        await context.fp.run(contests.join(CONTEST, name))
    if not any(one.state == "alive" for one in await judging.workers()):
        context.say("No judge works here: submissions wait. `fencepost doctor` says what it needs.")
    while True:
        slug, author = context.chance.choice(sorted(PROBLEMS)), context.chance.choice(CONTESTANTS)
        sources = {"main.py": context.chance.choice(programs[slug])}
        await judging.submit(slug, LANGUAGE, sources, author=author, contest=CONTEST)
        await context.pause(1.0, 4.0)


async def _import_problems(judging: Judging) -> dict[str, list[str]]:
    """Two of the sample problems, imported under names of the demo; and the programs that come with each."""
    programs: dict[str, list[str]] = {}
    known = {problem.slug for problem in await judging.problems(None, 1000)}
    with as_file(files("fencepost_judge") / "samples") as folder:
        for slug in PROBLEMS:
            place = folder / slug.removeprefix("demo-")
            if slug not in known:
                await judging.import_problem(place, slug=slug)
            programs[slug] = [file.read_text() for file in sorted((place / "submissions").rglob(PROGRAMS))]
    return programs


PART = DemoPart(
    name="judge",
    about="a contest in which programs are right, wrong and crash",
    path=f"{PAGES_ROOT}/contests/{CONTEST}/scoreboard",
    run=_run,
    counts="""
        with entries as materialized (
          select e.verdict from fencepost.judge_contests('demo-cup', null, 1) c
          cross join lateral fencepost.judge_contest_entries(c.slug) e)
        select 'submissions' as name, count(*) from entries
        union all select 'judged', count(verdict) from entries
        union all select 'accepted', count(*) from entries where verdict = 'AC'""",
    others="""
        select exists (select 1 from fencepost.judge_contests(null, null, 2) c where c.slug <> 'demo-cup')
            or (select count(*) from fencepost.jobs where queue = 'judge')
             > (select count(*) from fencepost.judge_contests('demo-cup', null, 1) c
                cross join lateral fencepost.judge_contest_entries(c.slug) e)""",
    clean=Path(__file__).parent / "demo.sql",
    queues=("judge",),
)
