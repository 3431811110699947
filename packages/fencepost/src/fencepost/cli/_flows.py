"""`fencepost flows`: run and inspect flows, and make and restore savepoints."""

from __future__ import annotations

from typing import Annotated

import typer

from fencepost.cli.terminal import JsonOption

Name = Annotated[str, typer.Argument(metavar="FLOW", help="Its name.")]
Savepoint = Annotated[str, typer.Argument(metavar="SAVEPOINT", help="A name for the savepoint.")]
DeadStep = Annotated[str, typer.Argument(metavar="STEP", help="The name given to dead_letters.")]
DeadIds = Annotated[list[int] | None, typer.Argument(metavar="[ID]...", help="Which, by id.")]
All = Annotated[bool, typer.Option("--all", help="All of them, the oldest first.")]
Limit = Annotated[int, typer.Option("--limit", min=1, help="Maximum number of results.")]

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="""Run and inspect flows, and keep and restore their savepoints.

    \b
    Examples:
      fencepost flows run shop.streams              the flow in shop/streams.py, until Ctrl-C
      fencepost flows list                          every flow, and how many tasks are held
      fencepost flows show totals                   each task: its worker, and its progress
      fencepost flows savepoint totals before-v2    keep what is committed now, under a name
      fencepost flows drain totals                  workers commit and release their tasks; --undo resumes
      fencepost flows restore totals before-v2      put every task back; no worker may hold one
      fencepost flows regroup totals before-v2 8    the same, in another number of key groups
      fencepost flows dead totals                   records that a step rejected, and why
      fencepost flows replay totals unreadable --all    feed them to the step again
    """,
)


@app.command()
def run(
    target: Annotated[
        str,
        typer.Argument(
            metavar="MODULE", help="Where the Flow is: shop.streams:totals, or the only one there."
        ),
    ],
    until_done: Annotated[
        bool, typer.Option("--until-done", help="End when every source has ended (files, iterables).")
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """Run a flow, until Ctrl-C. Any number of workers may run; they share its tasks.

    \b
    Examples:
      fencepost flows run shop.streams
      fencepost flows run shop.streams:totals --until-done
      fencepost flows run shop.streams --json | head -1        one line that says what it runs

    Settings: FLOW_LEASE_SEC, FLOW_CHECKPOINT_INTERVAL_SEC, METRICS_PORT and more, in docs/reference/flows.md.
    """
    from fencepost.cli._flow_service import serve_flow  # noqa: PLC0415 - Slow to load.

    serve_flow(target, until_done=until_done, as_json=json_output)


@app.command("list")
def list_flows(json_output: JsonOption = False) -> None:
    """List every flow that a worker has ever registered in this database.

    \b
    Examples:
      fencepost flows list
      fencepost flows list --json | jq -r '.flows[].name'
    """
    from fencepost.cli import _flow_commands as flow_commands  # noqa: PLC0415 - Loads psycopg, not needed by --help.

    flow_commands.show_all(as_json=json_output)


@app.command()
def show(name: Name, json_output: JsonOption = False) -> None:
    """Show every task of a flow: its holder, newest checkpoint and frontier, and the error that stops it.

    \b
    Examples:
      fencepost flows show totals
      fencepost flows show totals --json | jq '.tasks[].frontier'

    Exits with 4 when there is no such flow.
    """
    from fencepost.cli import _flow_commands as flow_commands  # noqa: PLC0415 - As above.

    flow_commands.show_one(name, as_json=json_output)


@app.command()
def savepoint(
    name: Name,
    savepoint: Savepoint,
    within: Annotated[
        float, typer.Option("--within", min=0, help="Seconds to wait for a commit of every task.")
    ] = 60,
    drop: Annotated[bool, typer.Option("--drop", help="Delete the savepoint of this name.")] = False,
) -> None:
    """Ask the workers for a commit, and keep it under a name. The flow keeps running.

    \b
    Nothing is kept if a task that a worker holds does not commit in time. With --within 0 no worker is asked,
    and the newest existing commits are kept.

    \b
    Examples:
      fencepost flows savepoint totals before-v2
      fencepost flows savepoint totals before-v2 --drop
    """
    from fencepost.cli import _flow_commands as flow_commands  # noqa: PLC0415 - As above.

    if drop:
        flow_commands.drop(name, savepoint)
    else:
        flow_commands.save(name, savepoint, within=within)


@app.command()
def restore(name: Name, savepoint: Savepoint) -> None:
    """Reset every task to a savepoint. Refused while a worker holds a task: drain first.

    \b
    Writes to sinks after the savepoint are not undone; sinks that replace by key, and those that recognise
    ids, are correct again when the flow has caught up.

    \b
    Examples:
      fencepost flows drain totals && fencepost flows restore totals before-v2
    """
    from fencepost.cli import _flow_commands as flow_commands  # noqa: PLC0415 - As above.

    flow_commands.restore(name, savepoint)


@app.command()
def regroup(
    name: Name,
    savepoint: Savepoint,
    groups: Annotated[
        int, typer.Argument(metavar="GROUPS", min=1, max=4096, help="How many key groups it is to have.")
    ],
) -> None:
    """Begin again from a savepoint in another number of key groups. Refused while a worker holds a task.

    \b
    State and frontiers are divided anew, exactly. As with restore, writes to sinks after the savepoint are
    not undone: keep the savepoint when the flow is drained, and there are none. Workers with the number of
    before can commit nothing any more, and end.

    \b
    Examples:
      fencepost flows drain totals
      fencepost flows savepoint totals before-8 --within 0
      fencepost flows regroup totals before-8 8
      fencepost flows drain totals --undo
    """
    from fencepost.cli import _flow_commands as flow_commands  # noqa: PLC0415 - As above.

    flow_commands.regroup(name, savepoint, groups)


@app.command()
def drain(
    name: Name,
    undo: Annotated[bool, typer.Option("--undo", help="Let the workers take its tasks again.")] = False,
    within: Annotated[float, typer.Option("--within", min=0, help="Seconds to wait for it.")] = 60,
) -> None:
    """Ask the workers of a flow to commit and release its tasks, and wait until they have.

    \b
    Examples:
      fencepost flows drain totals
      fencepost flows drain totals --undo
    """
    from fencepost.cli import _flow_commands as flow_commands  # noqa: PLC0415 - As above.

    flow_commands.drain(name, undo=undo, within=within)


@app.command()
def dead(
    name: Name,
    step: Annotated[str | None, typer.Option("--step", help="Only for this name of dead_letters.")] = None,
    limit: Limit = 100,
    json_output: JsonOption = False,
) -> None:
    """List the records that steps could not process, oldest first, with the error of each.

    \b
    Examples:
      fencepost flows dead totals
      fencepost flows dead totals --step unreadable --json | jq -r '.dead[].id'
    """
    from fencepost.cli import _flow_commands as flow_commands  # noqa: PLC0415 - As above.

    flow_commands.dead(name, step=step, limit=limit, as_json=json_output)


@app.command()
def replay(
    name: Name, step: DeadStep, ids: DeadIds = None, everything: All = False, limit: Limit = 10_000
) -> None:
    """Replay dead letters to their step. Each is delivered once; one that fails again is a dead letter again.

    \b
    Examples:
      fencepost flows replay totals unreadable 17 18
      fencepost flows replay totals unreadable --all
    """
    from fencepost.cli import _flow_commands as flow_commands  # noqa: PLC0415 - As above.

    flow_commands.replay(name, step, ids or [], everything=everything, limit=limit)


@app.command()
def discard(
    name: Name, step: DeadStep, ids: DeadIds = None, everything: All = False, limit: Limit = 10_000
) -> None:
    """Delete dead letters. Those with a requested replay stay.

    \b
    Examples:
      fencepost flows discard totals unreadable 17
      fencepost flows discard totals unreadable --all
    """
    from fencepost.cli import _flow_commands as flow_commands  # noqa: PLC0415 - As above.

    flow_commands.discard(name, step, ids or [], everything=everything, limit=limit)
