"""`fencepost judge contest`: contests and their scoreboards."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fencepost.cli.terminal import JsonOption, answer, answer_json

if TYPE_CHECKING:
    from fencepost_judge._contest_api import ContestRequest
    from fencepost_judge._scoreboard import Contest, ScoreboardCell, ScoreboardRow

SlugArgument = Annotated[str, typer.Argument(metavar="CONTEST")]
LIST_MAX = 10_000

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="""Contests and their scoreboards.

    \b
    Examples:
      fencepost judge contest put autumn contest.yaml
      fencepost judge contest import autumn groups.tsv teams.json accounts.yaml
      fencepost judge contest join autumn ada
      fencepost judge contest scoreboard autumn
      fencepost judge contest unfreeze autumn
    """,
)


@app.command()
def put(
    slug: SlugArgument,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="YAML.", exists=True, dir_okay=False)],
) -> None:
    """Create or change a contest.

    \b
    The file:
      title: Autumn
      scoring: icpc              # or ioi
      starts_at: 2026-10-03T09:00:00Z
      freeze_at: 2026-10-03T13:00:00Z
      ends_at: 2026-10-03T14:00:00Z
      secret_figures: rounded    # or shown, withheld, open: time and memory of secret tests
      problems: {A: fence-posts, B: painted-fence}
      colors: {A: "red #ff0000"}
      public: true               # the scoreboard needs no login
      medals: [4, 4, 4]          # gold, silver and bronze, by rank
    """
    from fencepost.cli.job_commands import acting, actor_name  # noqa: PLC0415 - Not needed by --help.
    from fencepost.kernel.drivers import run  # noqa: PLC0415

    wanted = read_contest(file)
    with acting() as connection:
        run(connection, wanted.call(slug, actor_name(None)))
    answer(f"{slug}: {len(wanted.problems)} problems, from {wanted.starts_at} to {wanted.ends_at}.")


def read_contest(file: Path) -> ContestRequest:
    """The contest that the file describes."""
    from fencepost.cli.exit_codes import UserError  # noqa: PLC0415
    from fencepost.strict_yaml import load_yaml  # noqa: PLC0415
    from fencepost_judge._contest_api import ContestRequest  # noqa: PLC0415

    try:
        return ContestRequest.model_validate(load_yaml(file.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise UserError(f"{file} is no contest: {error}") from None


@app.command("import")
def import_files(
    slug: SlugArgument,
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", exists=True, dir_okay=False)],
    json_output: JsonOption = False,
) -> None:
    """Import a contest, its teams and accounts, from files as DOMjudge reads them. All of it or nothing.

    \b
    What a file holds is told by its name:
      contest.yaml problemset.yaml
      groups organizations teams accounts, as .json, .yaml or .tsv
    An account without a password gets one, which is printed and stored nowhere.
    """
    from fencepost.cli.exit_codes import UserError  # noqa: PLC0415
    from fencepost.cli.job_commands import acting, actor_name  # noqa: PLC0415
    from fencepost.errors import InvalidInput  # noqa: PLC0415
    from fencepost.kernel.drivers import run  # noqa: PLC0415
    from fencepost_judge import _contests as contests  # noqa: PLC0415
    from fencepost_judge.ccs import _importing as importing  # noqa: PLC0415
    from fencepost_judge.ccs._imports import read_files  # noqa: PLC0415
    from fencepost_server.accounts.passwords import Passwords  # noqa: PLC0415

    try:
        texts = {file.name: file.read_text(encoding="utf-8") for file in files}
        found, issued = importing.with_passwords(read_files(texts, slug))
    except (OSError, UnicodeDecodeError, InvalidInput) as error:
        raise UserError(str(error)) from None
    with acting() as connection:
        known = run(connection, contests.contests(one=slug, limit=1))
        contest = known[0].contest if known else None
        # Hashed before the transaction: each takes a tenth of a second.
        calls = list(importing.calls_of(found, slug, actor_name(None), Passwords().hashed, contest))
        with connection.transaction():
            for call in calls:
                run(connection, call)
    if json_output:
        answer_json({"imported": importing.summary(found), "passwords": [asdict(one) for one in issued]})
        return
    answer(f"{slug}: {importing.summary(found)}.")
    for one in issued:
        answer(f"{one.username}\t{one.password}\t{one.team_name or one.team or ''}")


@app.command()
def teams(slug: SlugArgument, json_output: JsonOption = False) -> None:
    """List the teams of a contest."""
    from fencepost.cli.job_commands import looking  # noqa: PLC0415
    from fencepost.kernel.drivers import run  # noqa: PLC0415
    from fencepost_judge import _teams as teams  # noqa: PLC0415

    with looking() as connection:
        found = run(connection, teams.teams(slug))
    if json_output:
        answer_json([asdict(one) for one in found])
        return
    for one in found:
        answer(f"{one.id}  {one.kind.value}  {one.display_name or one.name}  {', '.join(one.members)}")


@app.command("list")
def list_contests(json_output: JsonOption = False) -> None:
    """List all contests."""
    from fencepost.cli.job_commands import looking  # noqa: PLC0415
    from fencepost.kernel.drivers import run  # noqa: PLC0415
    from fencepost_judge import _contests as contests  # noqa: PLC0415

    with looking() as connection:
        found = [one.contest for one in run(connection, contests.contests(limit=LIST_MAX))]
    if json_output:
        answer_json([asdict(one) for one in found])
        return
    for one in found:
        answer(f"{one.slug}  {one.scoring.value}  {one.starts_at} to {one.ends_at}  {one.title}")


@app.command()
def join(slug: SlugArgument, names: Annotated[list[str], typer.Argument(metavar="NAME...")]) -> None:
    """Enter users into a contest. Exits with 4 when there is no such contest."""
    from fencepost.cli.job_commands import acting  # noqa: PLC0415
    from fencepost.kernel.drivers import run  # noqa: PLC0415
    from fencepost_judge import _contests as contests  # noqa: PLC0415
    from fencepost_server.token_commands import known  # noqa: PLC0415

    with acting() as connection, known(f"There is no contest {slug}."):
        for name in names:
            run(connection, contests.join(slug, name))
    answer(f"{slug}: {', '.join(names)}.")


@app.command("scoreboard")
def show_scoreboard(
    slug: SlugArgument,
    at: Annotated[datetime | None, typer.Option("--at", help="As it was, in UTC.")] = None,
    public: Annotated[bool, typer.Option("--public", help="As contestants see it.")] = False,
    json_output: JsonOption = False,
) -> None:
    """Show the scoreboard, unfrozen unless --public is given. Exits with 4 when there is no such contest."""
    from datetime import UTC  # noqa: PLC0415

    from fencepost.cli.exit_codes import ExitCode, UserError  # noqa: PLC0415
    from fencepost.cli.job_commands import looking  # noqa: PLC0415
    from fencepost.kernel.drivers import run  # noqa: PLC0415
    from fencepost_judge import _contests as contests  # noqa: PLC0415
    from fencepost_judge import _teams as teams  # noqa: PLC0415
    from fencepost_judge._scoreboard import scoreboard  # noqa: PLC0415

    with looking() as connection:
        found = run(connection, contests.contests(one=slug, limit=1))
        if not found:
            raise UserError(f"There is no contest {slug}.", ExitCode.NOT_FOUND)
        entrants = [one.entrant for one in run(connection, teams.teams(slug))]
        entries = run(connection, contests.entries(slug))
    moment = at.replace(tzinfo=UTC) if at else found[0].seen_at
    lines = scoreboard(found[0].contest, entrants, entries, moment, sees_all=not public)
    if json_output:
        answer_json({"moment": moment, "lines": [asdict(line) for line in lines]})
    else:
        answer("\n".join(_table(found[0].contest, lines)))


@app.command()
def unfreeze(slug: SlugArgument) -> None:
    """Lift the freeze when the contest is over: the hidden results become visible to all."""
    from fencepost.cli.job_commands import acting, actor_name  # noqa: PLC0415
    from fencepost.kernel.drivers import run  # noqa: PLC0415
    from fencepost_judge import _contests as contests  # noqa: PLC0415
    from fencepost_server.token_commands import known  # noqa: PLC0415

    with acting() as connection, known(f"There is no contest {slug}."):
        run(connection, contests.unfreeze(slug, actor_name(None)))
    answer(f"{slug} is unfrozen.")


@app.command()
def reveal(slug: SlugArgument, json_output: JsonOption = False) -> None:
    """Show one result that the freeze hides: of the team that is ranked last, the first problem."""
    from fencepost.cli.exit_codes import ExitCode, UserError  # noqa: PLC0415
    from fencepost.cli.job_commands import acting, actor_name  # noqa: PLC0415
    from fencepost.kernel.drivers import run  # noqa: PLC0415
    from fencepost_judge import _contests as contests  # noqa: PLC0415
    from fencepost_judge import _teams as teams  # noqa: PLC0415
    from fencepost_judge._scoreboard import next_reveal  # noqa: PLC0415

    with acting() as connection:
        found = run(connection, contests.contests(one=slug, limit=1))
        if not found:
            raise UserError(f"There is no contest {slug}.", ExitCode.NOT_FOUND)
        entrants = [one.entrant for one in run(connection, teams.teams(slug))]
        entries = run(connection, contests.entries(slug))
        chosen = next_reveal(found[0].contest, entrants, entries, found[0].seen_at)
        if chosen is not None:
            run(connection, contests.reveal(slug, *chosen, actor_name(None)))
    team, problem = chosen or (None, None)
    if json_output:
        answer_json({"team_id": team, "problem_id": problem})
    else:
        answer(f"{team} at {problem}." if chosen else "Nothing is hidden any more.")


@app.command()
def finalize(slug: SlugArgument) -> None:
    """Make the results final: only when the contest is over and every submission has its verdict."""
    from fencepost.cli.job_commands import acting, actor_name  # noqa: PLC0415
    from fencepost.kernel.drivers import run  # noqa: PLC0415
    from fencepost_judge import _contests as contests  # noqa: PLC0415
    from fencepost_server.token_commands import known  # noqa: PLC0415

    with acting() as connection, known(f"There is no contest {slug}."):
        run(connection, contests.finalize(slug, actor_name(None)))
    answer(f"The results of {slug} are final.")


@app.command()
def reopen(slug: SlugArgument) -> None:
    """Let the results of a final contest change again."""
    from fencepost.cli.job_commands import acting, actor_name  # noqa: PLC0415
    from fencepost.kernel.drivers import run  # noqa: PLC0415
    from fencepost_judge import _contests as contests  # noqa: PLC0415
    from fencepost_server.token_commands import known  # noqa: PLC0415

    with acting() as connection, known(f"There is no contest {slug}."):
        run(connection, contests.reopen(slug, actor_name(None)))
    answer(f"The results of {slug} may change again.")


def _table(contest: Contest, lines: list[ScoreboardRow]) -> list[str]:
    labels = [problem.label for problem in contest.problems]
    width = max([len(line.name) for line in lines] + [4])
    head = f"{'':4} {'name':{width}}  {'score':>10}  " + "  ".join(f"{label:>8}" for label in labels)
    rows = [
        f"{line.rank or '':4} {line.name:{width}}  {_score(line):>10}  "
        + "  ".join(f"{_mark(line.cells[label]):>8}" for label in labels)
        for line in lines
    ]
    return [head, *rows]


def _score(line: ScoreboardRow) -> str:
    return f"{line.solved} ({line.penalty})" if line.points is None else f"{line.points:g}"


def _mark(cell: ScoreboardCell) -> str:
    """A cell in the usual notation: +2/57 solved in minute 57 after two tries, -3 tried, ?1 not known yet."""
    if cell.points is not None:
        return f"{cell.points:g}{f' ?{cell.pending}' if cell.pending else ''}"
    if cell.solved_minute is not None:
        return f"+{cell.tries or ''}/{cell.solved_minute}{'!' if cell.first else ''}"
    tried = f"-{cell.tries}" if cell.tries else ""
    return f"{tried}{f'?{cell.pending}' if cell.pending else ''}" or "."
