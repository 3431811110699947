"""`fencepost judge rejudge`: judge again, compare, and apply or drop."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from fencepost.cli.terminal import JsonOption, answer, answer_json

if TYPE_CHECKING:
    from fencepost_judge._rejudging import Change, Filter, Opened

GenerationArgument = Annotated[int, typer.Argument(metavar="GENERATION")]
LIST_MAX = 1000
SHOW_MAX = 100_000

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="""Judge submissions again, beside their standing verdicts.

    \b
    Examples:
      fencepost judge rejudge start --problem fence-posts --verdict WA --reason "test 7 was wrong"
      fencepost judge rejudge show 3
      fencepost judge rejudge apply 3
    """,
)


@app.command()
def start(
    reason: Annotated[str, typer.Option("--reason", help="The reason, for the history.")],
    submission: Annotated[list[int] | None, typer.Option("--submission", help="One, or several.")] = None,
    problem: Annotated[str | None, typer.Option("--problem", help="All submissions to this problem.")] = None,
    author: Annotated[str | None, typer.Option("--author", help="All submissions of this author.")] = None,
    language: Annotated[str | None, typer.Option("--language", help="Only this language.")] = None,
    verdict: Annotated[
        str | None, typer.Option("--verdict", help="Only submissions with this verdict.")
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Judge submissions again with the newest version of each problem, after all waiting submissions.

    Nothing changes until the generation is applied. Exits with 4 when no submission matches.
    """
    import asyncio  # noqa: PLC0415 - Not needed by --help.

    from fencepost_judge._rejudging import Filter  # noqa: PLC0415
    from fencepost_server.token_commands import known  # noqa: PLC0415

    chosen = Filter(
        submissions=submission, problem=problem, author=author, language=language, verdict=verdict
    )
    with known("No submission fits."):
        opened = asyncio.run(_start(chosen, reason))
    if json_output:
        answer_json(asdict(opened))
    else:
        answer(f"Generation {opened.generation}: {opened.submissions} submissions.")


@app.command("list")
def list_generations(json_output: JsonOption = False) -> None:
    """List the generations, newest first."""
    from fencepost.cli.job_commands import looking  # noqa: PLC0415
    from fencepost.kernel.drivers import run  # noqa: PLC0415
    from fencepost_judge import _rejudging as rejudging  # noqa: PLC0415

    with looking() as connection:
        found = run(connection, rejudging.generations(limit=LIST_MAX))
    if json_output:
        answer_json([asdict(one) for one in found])
        return
    for one in found:
        answer(f"{one.generation}  {one.state}  {one.judged} of {one.submissions}  {one.reason}")


@app.command()
def show(
    generation: GenerationArgument,
    everything: Annotated[bool, typer.Option("--all", help="Include results that stay the same.")] = False,
    json_output: JsonOption = False,
) -> None:
    """Show what a generation changes: each submission, before and after. Exits with 4 when there is none."""
    from fencepost.cli.exit_codes import ExitCode, UserError  # noqa: PLC0415
    from fencepost.cli.job_commands import looking  # noqa: PLC0415
    from fencepost.kernel.drivers import run  # noqa: PLC0415
    from fencepost_judge import _rejudging as rejudging  # noqa: PLC0415

    with looking() as connection:
        found = run(connection, rejudging.generations(one=generation, limit=1))
        changes = run(connection, rejudging.changes(generation, changed=not everything, limit=SHOW_MAX))
    if not found:
        raise UserError(f"There is no generation {generation}.", ExitCode.NOT_FOUND)
    if json_output:
        answer_json({**asdict(found[0]), "changes": [asdict(one) for one in changes]})
        return
    one = found[0]
    answer(f"{one.generation}  {one.state}  {one.judged} of {one.submissions}  {one.reason}")
    for change in changes:
        answer(_line(change))


@app.command()
def apply(generation: GenerationArgument) -> None:
    """Make the results of a generation the valid ones, all of them or none.

    Exits with 1 when a result is missing or a later generation is applied already; with 4 when there is none.
    """
    from fencepost.cli.job_commands import acting, actor_name  # noqa: PLC0415
    from fencepost.kernel.drivers import run  # noqa: PLC0415
    from fencepost_judge import _rejudging as rejudging  # noqa: PLC0415
    from fencepost_server.token_commands import known  # noqa: PLC0415

    with acting() as connection, known(f"There is no generation {generation}."):
        count = run(connection, rejudging.apply(generation, actor_name(None)))
    answer(f"Generation {generation} stands: {count} results.")


@app.command()
def drop(generation: GenerationArgument) -> None:
    """Drop a generation; the valid results do not change. Exits with 4 when there is none."""
    from fencepost.cli.job_commands import acting, actor_name  # noqa: PLC0415
    from fencepost.kernel.drivers import run  # noqa: PLC0415
    from fencepost_judge import _rejudging as rejudging  # noqa: PLC0415
    from fencepost_server.token_commands import known  # noqa: PLC0415

    with acting() as connection, known(f"There is no generation {generation}."):
        run(connection, rejudging.drop(generation, actor_name(None)))
    answer(f"Generation {generation} is dropped.")


async def _start(chosen: Filter, reason: str) -> Opened:
    from fencepost.cli.job_commands import actor_name  # noqa: PLC0415
    from fencepost.client import Fencepost  # noqa: PLC0415
    from fencepost_judge._service import Judging  # noqa: PLC0415
    from fencepost_judge._settings import JudgeSettings  # noqa: PLC0415

    async with Fencepost.from_env() as fp:
        return await Judging(fp, JudgeSettings.load()).rejudge(chosen, reason=reason, actor=actor_name(None))


def _line(one: Change) -> str:
    now = _grade(one.verdict_after, one.score_after) if one.judged else "not judged yet"
    before = _grade(one.verdict_before, one.score_before)
    return f"  {one.submission_id}  {one.author}  {one.slug}: {before} -> {now}"


def _grade(verdict: str | None, score: float | None) -> str:
    return f"{verdict or 'none'}{'' if score is None else f' {score:g}'}"
