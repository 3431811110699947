"""`fencepost judge`: problems and their packages, languages and the sandbox."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fencepost.cli.exit_codes import ExitCode
from fencepost.cli.terminal import JsonOption, answer, answer_json
from fencepost_judge.commands import _accounts as accounts
from fencepost_judge.commands import _calibrate as calibrate
from fencepost_judge.commands import _clarifications as clarifications
from fencepost_judge.commands import _contests as contests
from fencepost_judge.commands import _custom_run as custom_run
from fencepost_judge.commands import _judge_workers as judge_workers
from fencepost_judge.commands import _rejudge as rejudge

if TYPE_CHECKING:
    from fencepost_judge._judge_calls import ProblemTitle
    from fencepost_judge._language import Language, LanguageSpec
    from fencepost_judge._verification import Verification, Verified

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Problems, users, languages and the sandbox."
)
app.add_typer(accounts.users_app, name="users")
app.add_typer(accounts.tokens_app, name="tokens")
app.add_typer(rejudge.app, name="rejudge")
app.add_typer(contests.app, name="contest")
app.add_typer(clarifications.app, name="clarify")
app.command("workers")(judge_workers.workers)
app.command("calibrate")(calibrate.calibrate)
app.command("try")(custom_run.try_out)
Package = Annotated[Path, typer.Argument(metavar="PACKAGE", help="A folder or a zip.", exists=True)]


TimeLimit = Annotated[
    float | None, typer.Option(help="In seconds, instead of the package's.", min=0.01, max=600)
]


@app.command("verify")
def verify_package(
    package: Package,
    time_limit: TimeLimit = None,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a report in Markdown, for the setters.")
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Run all submissions of a problem package, and compare each verdict with the expected one.

    \b
    A package is in the ICPC format (legacy, 2023-07 or 2025-09), of Polygon, CMS or DMOJ, or a simple folder
    of .in and .ans files, or a zip of any. What is expected is said by the folder, by submissions.yaml, or by
    a tag in the program (@EXPECTED_RESULTS@, @EXPECTED_SCORE@); NAME.disabled is skipped.

    Needs no server. Exits with 1 when a submission got an unexpected verdict, or when the package's own
    validators reject its data.
    """
    import asyncio  # noqa: PLC0415 - Not needed by --help.

    from fencepost_judge._verify_report import headline  # noqa: PLC0415
    from fencepost_judge._verify_report import report as written  # noqa: PLC0415

    def tell(line: str) -> None:
        if json_output:
            typer.echo(line, err=True)
        else:
            answer(line)

    made = asyncio.run(_verify(package, time_limit, tell))
    if report is not None:
        report.write_text(written(made), encoding="utf-8")
    if json_output:
        answer_json(
            {
                "problem": headline(made.read),
                "submissions": [_row(one) for one in made.submissions],
                "disabled": list(made.read.disabled),
                "data": [{"name": one.name, "kept": one.kept, "why": one.why} for one in made.data],
            }
        )
    kept = made.kept
    if not json_output:
        answer(f"{kept.count(True)} as expected, {kept.count(False)} not, {kept.count(None)} not checked")
    if False in kept:
        raise typer.Exit(ExitCode.PROBLEM)


@app.command("import")
def import_package(
    package: Package,
    slug: Annotated[str | None, typer.Option(help="Its short name; otherwise the folder's.")] = None,
    time_limit: TimeLimit = None,
    json_output: JsonOption = False,
) -> None:
    """Import a problem package. Importing the same content again gives the same version.

    For a package without a time limit, its solutions run here to infer one, unless --time-limit is given.
    """
    import asyncio  # noqa: PLC0415

    made = asyncio.run(_import(package, slug, time_limit))
    if json_output:
        answer_json({"slug": made.slug, "version": made.version, "title": made.title})
    else:
        answer(f"{made.slug}: version {made.version}")


@app.command("languages")
def languages(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME_OR_FILE]...", help="Only these; a file is a definition."),
    ] = None,
    test: Annotated[
        bool, typer.Option("--test", help="Judge the test programs of each definition in the sandbox.")
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """List the languages that this machine supports, and what is missing for the others.

    With --test, each definition's own programs are judged: one that echoes a line, one that loops, one that
    takes all memory and one that fails. Exits with 1 when a verdict is not the expected one.
    """
    import asyncio  # noqa: PLC0415

    from fencepost_judge._language import find_languages  # noqa: PLC0415

    specs = _specs(names or [])
    found = find_languages(specs)
    checks = asyncio.run(_check(specs, found)) if test else {}
    rows = [
        {
            "name": spec.name,
            "title": spec.title,
            "version": found[spec.name].version if spec.name in found else None,
            "time_factor": spec.time_factor,
            "memory_extra_kb": spec.memory_extra_kb,
            **({"tests": checks.get(spec.name, [])} if test else {}),
        }
        for spec in specs
    ]
    if json_output:
        answer_json(rows)
    else:
        missing = {spec.name: ", ".join(one.names[0] for one in spec.programs.values()) for spec in specs}
        for row in rows:
            name = str(row["name"])
            answer(f"{row['title']:12} {row['version'] or f'not offered: install {missing[name]}'}")
            for one in checks.get(name, []):
                sign = "ok  " if one["verdict"] == one["expected"] else "FAIL"
                answer(
                    f"  {sign} {one['name']}: {one['verdict']}  {one['time_ms']} ms  {one['message']}"[:200]
                )
    if any(one["verdict"] != one["expected"] for tests in checks.values() for one in tests):
        raise typer.Exit(ExitCode.PROBLEM)


def _specs(names: Sequence[str]) -> Sequence[LanguageSpec]:
    """The definitions by name or file; all for none."""
    from fencepost.cli.exit_codes import UserError  # noqa: PLC0415
    from fencepost.errors import InvalidInput  # noqa: PLC0415
    from fencepost_judge._language import read_spec, read_specs  # noqa: PLC0415

    try:
        known = {spec.name: spec for spec in read_specs()}
        chosen: list[LanguageSpec] = []
        for name in names:
            if name in known:
                chosen.append(known[name])
            elif Path(name).is_file():
                chosen.append(read_spec(name, Path(name).read_text(encoding="utf-8")))
            else:
                raise UserError(f"There is no language {name}, and no such file. Known: {', '.join(known)}.")
    except (InvalidInput, OSError, UnicodeDecodeError) as error:
        raise UserError(str(error)) from None
    return chosen or list(known.values())


async def _check(
    specs: Sequence[LanguageSpec], found: Mapping[str, Language]
) -> dict[str, list[dict[str, Any]]]:
    from dataclasses import asdict  # noqa: PLC0415

    from fencepost.cli.exit_codes import UserError  # noqa: PLC0415
    from fencepost_judge._language_check import open_language_checks  # noqa: PLC0415
    from fencepost_judge._settings import JudgeSettings  # noqa: PLC0415
    from fencepost_judge.sandbox._probing import probe_machine  # noqa: PLC0415

    settings = JudgeSettings.load()
    report = probe_machine(cgroup=settings.cgroup == "auto")
    if not report.ready:
        raise UserError(f"The sandbox cannot run: {report.error} {report.remedy}")
    async with open_language_checks(settings, found, report.bubblewrap) as checks:
        return {
            spec.name: [asdict(one) for one in await checks.check(spec)]
            for spec in specs
            if spec.name in found
        }


@app.command("work")
def work(json_output: JsonOption = False) -> None:
    """Judge submissions on this machine, until Ctrl-C. Serves no pages: `fencepost serve` does.

    \b
    Ctrl-C or SIGTERM drains: what is being judged is finished (JOBS_DRAIN_SEC). Any number of judges may run,
    on any number of machines; each claims only the languages that it compiles. Its health and metrics are at
    METRICS_PORT. A judge that produces system errors is taken out of service: see `fencepost workers list`.

    \b
    Settings: JUDGE_SLOTS, JUDGE_LANGUAGES, JUDGE_STORE, JUDGE_LEASE_SEC; all in docs/reference/judge.md.
    Exits with 1 when the sandbox cannot run here.
    """
    from fencepost.cli.exit_codes import UserError  # noqa: PLC0415
    from fencepost_judge._settings import JudgeSettings  # noqa: PLC0415
    from fencepost_judge.sandbox._probing import probe_machine  # noqa: PLC0415
    from fencepost_server.roles import run_roles  # noqa: PLC0415

    report = probe_machine(cgroup=JudgeSettings.load().cgroup == "auto")
    if not report.ready:
        raise UserError(f"The sandbox cannot run: {report.error} {report.remedy}")
    run_roles(["judge"], as_json=json_output)


@app.command("probe")
def probe(json_output: JsonOption = False) -> None:
    """Show what the sandbox supports on this machine: namespaces, cgroups, and what is degraded."""
    from fencepost_judge.sandbox._probing import probe_machine  # noqa: PLC0415

    report = probe_machine()
    if json_output:
        answer_json(report.as_json())
    else:
        answer("\n".join(report.lines()))
    if not report.ready:
        raise typer.Exit(ExitCode.PROBLEM)


async def _verify(package: Path, seconds: float | None, tell: Callable[[str], None]) -> Verification:
    """Tells each line when it is known."""
    import tempfile  # noqa: PLC0415

    from fencepost.cli.exit_codes import UserError  # noqa: PLC0415
    from fencepost.metrics import Metrics  # noqa: PLC0415
    from fencepost_judge._metrics import JudgeMetrics  # noqa: PLC0415
    from fencepost_judge._runtime import open_judge  # noqa: PLC0415
    from fencepost_judge._settings import JudgeSettings  # noqa: PLC0415
    from fencepost_judge._store import Store  # noqa: PLC0415
    from fencepost_judge._verification import verify_package  # noqa: PLC0415
    from fencepost_judge._verify_report import progress_lines  # noqa: PLC0415
    from fencepost_judge.packages._reading import read_problem  # noqa: PLC0415
    from fencepost_judge.sandbox._probing import probe_machine  # noqa: PLC0415

    told = 0

    async def tell_new(made: Verification) -> None:
        nonlocal told
        lines = progress_lines(made)
        for line in lines[told:]:
            tell(line)
        told = len(lines)

    with tempfile.TemporaryDirectory(prefix="fencepost-verify-") as scratch:
        store, settings, metrics = Store(Path(scratch)), JudgeSettings.load(), JudgeMetrics.on(Metrics())
        read = read_problem(package, store)
        report = probe_machine(cgroup=settings.cgroup == "auto")
        if not report.ready:
            raise UserError(f"The sandbox cannot run: {report.error} {report.remedy}")
        async with open_judge(settings, metrics, store, bubblewrap=report.bubblewrap) as judge:
            if read.making is not None:
                tell(f"Making {len(read.making.recipes)} tests.")
            return await verify_package(
                judge, read, store, seconds=seconds, python=settings.python, tell=tell_new
            )


async def _import(package: Path, slug: str | None, seconds: float | None) -> ProblemTitle:
    from fencepost.client import Fencepost  # noqa: PLC0415
    from fencepost_judge._service import Judging  # noqa: PLC0415
    from fencepost_judge._settings import JudgeSettings  # noqa: PLC0415

    async with Fencepost.from_env() as fp:
        return await Judging(fp, JudgeSettings.load()).import_problem(
            package, slug=slug, time_limit_seconds=seconds
        )


def _row(one: Verified) -> dict[str, object]:
    return {
        "name": one.submission.name,
        "expected": sorted(one.submission.expected),
        "verdict": one.got.verdict if one.got else None,
        "score": one.got.score if one.got else None,
        "time_ms": one.got.time_ms if one.got else None,
        "mem_kb": one.got.mem_kb if one.got else None,
        "kept": one.kept,
        "fault": one.fault,
        "broken": one.broken,
        "skipped": one.skipped,
    }
