"""`fencepost judge clarify`: contestants' questions, answers, announcements."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from fencepost.cli.terminal import JsonOption, answer, answer_json

if TYPE_CHECKING:
    from fencepost_judge._contests import Clarification

SlugArgument = Annotated[str, typer.Argument(metavar="CONTEST")]
TextArgument = Annotated[str, typer.Argument(metavar="TEXT")]
LabelOption = Annotated[str | None, typer.Option("--problem", help="Its label in the contest, as A.")]
LIST_MAX = 10_000

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="""Questions of contestants, their answers, and announcements.

    \b
    Examples:
      fencepost judge clarify list autumn --open
      fencepost judge clarify answer autumn 3 "Yes, it may be empty." --to-all
      fencepost judge clarify announce autumn "Test 7 of A was wrong." --problem A
    """,
)


@app.command("list")
def list_clarifications(
    slug: SlugArgument,
    unanswered: Annotated[bool, typer.Option("--open", help="Only questions without an answer.")] = False,
    json_output: JsonOption = False,
) -> None:
    """List questions, answers and announcements, in order. Exits with 4 when there is no such contest."""
    from fencepost.cli.exit_codes import ExitCode, UserError  # noqa: PLC0415 - Not needed by --help.
    from fencepost.cli.job_commands import looking  # noqa: PLC0415
    from fencepost.kernel.drivers import run  # noqa: PLC0415
    from fencepost_judge import _contests as contests  # noqa: PLC0415

    with looking() as connection:
        if not run(connection, contests.contests(one=slug, limit=1)):
            raise UserError(f"There is no contest {slug}.", ExitCode.NOT_FOUND)
        found = run(connection, contests.clarifications(slug, seen_by=None, limit=LIST_MAX))
    shown = [one for one in found if one.answer is None or not unanswered]
    if json_output:
        answer_json([asdict(one) for one in shown])
        return
    for one in shown:
        answer(_line(one))


@app.command("answer")
def answer_question(
    slug: SlugArgument,
    clarification: Annotated[int, typer.Argument(metavar="ID")],
    text: TextArgument,
    to_all: Annotated[bool, typer.Option("--to-all", help="Let every contestant read both.")] = False,
) -> None:
    """Answer a question, once. Exits with 1 when it has an answer, with 4 when there is no such one."""
    from fencepost.cli.job_commands import acting, actor_name  # noqa: PLC0415
    from fencepost.kernel.drivers import run  # noqa: PLC0415
    from fencepost_judge import _contests as contests  # noqa: PLC0415
    from fencepost_server.token_commands import known  # noqa: PLC0415

    call = contests.answer(slug, clarification, text, to_all=to_all, actor=actor_name(None))
    with acting() as connection, known(f"There is no question {clarification} in {slug}."):
        run(connection, call)
    answer(f"{slug}: question {clarification} is answered.")


@app.command()
def announce(slug: SlugArgument, text: TextArgument, problem: LabelOption = None) -> None:
    """Announce something to every contestant. Exits with 4 when there is no such contest."""
    from fencepost.cli.job_commands import acting, actor_name  # noqa: PLC0415
    from fencepost.kernel.drivers import run  # noqa: PLC0415
    from fencepost_judge import _contests as contests  # noqa: PLC0415
    from fencepost_server.token_commands import known  # noqa: PLC0415

    with acting() as connection, known(f"There is no contest {slug}."):
        run(connection, contests.announce(slug, problem, text, actor_name(None)))
    answer(f"{slug}: announced.")


def _line(one: Clarification) -> str:
    about = f" {one.label}" if one.label else ""
    asked = f"{one.author}: {one.question}" if one.question else "announced"
    said = "open" if one.answer is None else f"{one.answer}{' (to all)' if one.to_all else ''}"
    return f"{one.clarification_id}{about}  {asked}  -> {said}"
