"""`fencepost workers`: which workers there are, and which of them may claim what."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fencepost.cli.exit_codes import ExitCode, UserError
from fencepost.cli.terminal import JsonOption, answer, answer_json, answer_rich

if TYPE_CHECKING:
    from fencepost.kernel.call import Call
    from fencepost.kernel.worker import WorkerRow

Targets = Annotated[
    list[str],
    typer.Argument(metavar="TARGET", help="A host, NAME@HOST, or the whole name of one process."),
]
ReasonOption = Annotated[str, typer.Option("--reason", help="The reason, for the history.", prompt="Reason")]
ActorOption = Annotated[
    str | None,
    typer.Option("--actor", help="Whose name the history keeps.", show_default="you and this machine"),
]
WordsOption = str | None

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="""See which workers there are, and take them in and out of service. Judges are workers.

    \b
    Look:
      fencepost workers list                     all of them, and what is out of service
      fencepost explain worker:judge@node7       who decided what, when and why

    \b
    Decide:
      fencepost workers drain node7              its processes finish what they hold and claim nothing more
      fencepost workers disable judge@node7      it claims nothing, also after a restart
      fencepost workers enable node7             until you say so
      fencepost workers pin node7 --queues mail  it claims only these
      fencepost workers unpin node7

    \b
    A target is a host, NAME@HOST (worker, judge, or JOBS_WORKER_ID), or the whole name of one process. The
    database applies it to each claim, so a worker that does not know of it gets nothing either. Every
    decision needs a reason and is recorded with your name.
    """,
)


@app.command("list")
def list_workers(json_output: JsonOption = False) -> None:
    """List the workers that are there, and the targets that are held or pinned.

    \b
    Examples:
      fencepost workers list
      fencepost workers list --json | jq -r '.[] | select(.state == "drained").owner'
    """
    from fencepost.cli import job_commands  # noqa: PLC0415 - Loads psycopg, not needed by --help.
    from fencepost.kernel import worker  # noqa: PLC0415
    from fencepost.kernel.drivers import run  # noqa: PLC0415

    with job_commands.looking() as connection:
        found = run(connection, worker.listing())
    if json_output:
        answer_json([asdict(one) for one in found])
        return
    from fencepost.cli._job_screen import table  # noqa: PLC0415 - Loads rich.

    if not found:
        answer("No workers are registered, and nothing is held or pinned.")
        return
    heads = ("worker", "state", "running", "serves", "")
    answer_rich(table(heads, [_cells(one) for one in found]))


@app.command()
def drain(
    targets: Targets, reason: ReasonOption, actor: ActorOption = None, json_output: JsonOption = False
) -> None:
    """Let the processes that are there finish what they hold; they claim nothing more.

    `fencepost workers list` shows `drained` when one holds nothing. Exits with 4 when no worker is there.
    """
    from fencepost.kernel import worker  # noqa: PLC0415 - As above.

    _decide(
        targets,
        reason,
        actor,
        worker.drain,
        lambda owners: f"draining {', '.join(owners)}",
        json_output=json_output,
    )


@app.command()
def disable(
    targets: Targets, reason: ReasonOption, actor: ActorOption = None, json_output: JsonOption = False
) -> None:
    """Let workers claim nothing until they are enabled, also after a restart. They finish what they hold.

    A target need not be there: a host can be disabled before it is started.
    """
    from fencepost.kernel import worker  # noqa: PLC0415 - As above.

    _decide(
        targets,
        reason,
        actor,
        worker.disable,
        lambda owners: f"disabled; {_many(owners)} now",
        json_output=json_output,
    )


@app.command()
def enable(
    targets: Targets, reason: ReasonOption, actor: ActorOption = None, json_output: JsonOption = False
) -> None:
    """Put drained and disabled workers back into service. Enabling a host enables everything on it.

    Exits with 4 when nothing of the target is out of service.
    """
    from fencepost.kernel import worker  # noqa: PLC0415 - As above.

    _decide(
        targets,
        reason,
        actor,
        worker.enable,
        lambda held: f"enabled {', '.join(held)}",
        json_output=json_output,
    )


@app.command()
def pin(
    targets: Targets,
    reason: ReasonOption,
    queues: Annotated[
        WordsOption, typer.Option("--queues", metavar="A,B", help="Only these queues.", show_default=False)
    ] = None,
    kinds: Annotated[
        WordsOption, typer.Option("--kinds", metavar="A,B", help="Only these kinds.", show_default=False)
    ] = None,
    offers: Annotated[
        WordsOption,
        typer.Option(
            "--offers", metavar="A,B", help="Only these abilities, such as language:cpp.", show_default=False
        ),
    ] = None,
    actor: ActorOption = None,
    json_output: JsonOption = False,
) -> None:
    """Restrict workers to some of what they serve. Replaces an earlier pin of the same target.

    \b
    What they may not take waits for other workers. A judge with --offers language:cpp judges what needs
    C++ and nothing else: also the validators of a problem must be in these languages.

    \b
    Examples:
      fencepost workers pin node7 --queues mail --reason "the mail is late"
      fencepost workers pin judge@node7 --offers language:java,language:kotlin --reason "more memory"
    """
    from fencepost.kernel import worker  # noqa: PLC0415 - As above.

    words = {"queues": _words(queues), "kinds": _words(kinds), "abilities": _words(offers)}
    if all(one is None for one in words.values()):
        raise UserError("Say what to pin it to: --queues, --kinds or --offers.", ExitCode.USAGE)

    def call(target: str, name: str, why: str) -> Call[list[str]]:
        return worker.pin(target, name, why, **words)

    _decide(
        targets, reason, actor, call, lambda owners: f"pinned; {_many(owners)} now", json_output=json_output
    )


@app.command()
def unpin(
    targets: Targets, reason: ReasonOption, actor: ActorOption = None, json_output: JsonOption = False
) -> None:
    """Let workers claim all that they serve again. Exits with 4 when the target has no pin."""
    from fencepost.kernel import worker  # noqa: PLC0415 - As above.

    _decide(targets, reason, actor, worker.unpin, lambda _: "unpinned", json_output=json_output)


def _decide(
    targets: Sequence[str],
    reason: str,
    actor: str | None,
    call: Callable[[str, str, str], Call[Any]],
    told: Callable[[Sequence[str]], str],
    *,
    json_output: bool,
) -> None:
    from fencepost.cli import job_commands  # noqa: PLC0415 - As above.
    from fencepost.kernel import worker  # noqa: PLC0415
    from fencepost.kernel.drivers import run  # noqa: PLC0415

    with job_commands.acting() as connection:
        name = job_commands.actor_name(actor)

        def act(target: str) -> str:
            done = told(run(connection, call(target, name, reason)) or ())
            still = run(connection, worker.standing(target)) if call is worker.enable else None
            return done if still is None else f"{done}; {still.target} is still {still.state}: {still.reason}"

        job_commands.for_each("target", targets, act, as_json=json_output)


def _words(text: str | None) -> list[str] | None:
    return None if text is None else [word.strip() for word in text.split(",") if word.strip()]


def _many(owners: Sequence[str]) -> str:
    return "1 worker is there" if len(owners) == 1 else f"{len(owners)} workers are there"


def _cells(one: WorkerRow) -> tuple[object, ...]:
    serves = ", ".join(one.queues)
    return one.target, one.state, one.running if one.owner else "not there", serves, "; ".join(_remarks(one))


def _remarks(one: WorkerRow) -> list[str]:
    remarks: list[str] = []
    if one.reason is not None:
        by = "" if one.held_by == one.target else f"{one.held_by} "
        remarks.append(
            f"{by}{'draining' if one.state == 'drained' else one.state} by {one.actor}: {one.reason}"
        )
    if one.pinned_to is not None:
        parts = (
            ", ".join(one.pinned_to.get("queues") or ()),
            ", ".join(one.pinned_to.get("kinds") or ()),
            one.pinned_to.get("offers") or "",
        )
        remarks.append(
            f"pinned to {'; '.join(filter(None, parts)) or 'nothing'} by {one.pin_actor}: {one.pin_reason}"
        )
    return remarks
