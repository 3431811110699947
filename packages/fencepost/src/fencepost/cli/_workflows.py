"""`fencepost workflows`: inspect workflows and their versions, and act on those that need an operator."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fencepost.cli._jobs import ActorOption, ArgumentOption, SomeIds, State, TagOption, YesOption
from fencepost.cli.terminal import JsonOption, answer, answer_json, answer_rich

if TYPE_CHECKING:
    from fencepost.kernel._workflow_operator import WorkflowFilter

StateOption = Annotated[State | None, typer.Option("--state", help="In this state.", show_default=False)]
NameOption = Annotated[str | None, typer.Option("--name", help="Of this name.", show_default=False)]
WaitsOption = Annotated[
    Literal["event", "time"] | None,
    typer.Option("--waits", help="Parked: for an event, or for the time alone.", show_default=False),
]
WorkflowId = Annotated[int, typer.Argument(metavar="ID", help="The workflow's id: that of its job.")]

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="""Inspect workflows, and decide on those that need attention.

    \b
    Look:
      fencepost workflows list --state dead
      fencepost workflows show 7                     its steps, waits and compensations
      fencepost workflows versions                   live workflows by version

    \b
    Decide:
      fencepost workflows emit approve:7 --payload '{"by": "anna"}'
      fencepost workflows cancel 7                   its steps are undone, newest first
      fencepost workflows retry-from 7 ship          drops that step and all later ones, and runs it again

    Every decision is recorded with your name: fencepost explain 7.
    """,
)


@app.command("list")
def list_workflows(
    state: StateOption = None,
    name: NameOption = None,
    waits: WaitsOption = None,
    tag: TagOption = None,
    arg: ArgumentOption = None,
    before: Annotated[
        int | None,
        typer.Option("--before", metavar="ID", help="Only entries with a lower id.", show_default=False),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="Maximum number of results.")] = 50,
    json_output: JsonOption = False,
) -> None:
    """List workflows, newest first: state, steps, and what they wait for.

    \b
    Examples:
      fencepost workflows list
      fencepost workflows list --name fulfil --state pending
      fencepost workflows list --waits event                 what waits for an approval, or another event
      fencepost workflows list --arg order_id=7 --json | jq -r '.workflows[].error'
    """
    from fencepost.cli import _workflow_screen as workflow_screen  # noqa: PLC0415
    from fencepost.cli import job_commands  # noqa: PLC0415 - `--help` needs no driver.

    wanted = _filter(state, name, waits, tag, arg)
    with job_commands.looking() as connection:
        page = workflow_screen.read_page(connection, wanted, before_id=before, limit=limit)
    if json_output:
        answer_json(page)
        return
    given = {"state": state, "name": name, "waits": waits}
    filters = "".join(f" --{option} {quote(value)}" for option, value in given.items() if value)
    filters += "".join(f" --tag {quote(one)}" for one in tag or ())
    filters += "".join(f" --arg {quote(one)}" for one in arg or ())
    answer_rich(workflow_screen.page_screen(page, again=f"fencepost workflows list{filters} --limit {limit}"))


@app.command()
def show(workflow_id: WorkflowId, json_output: JsonOption = False) -> None:
    """Show one workflow: every step with its attempt and result, waits, children, undo, and the traceback of
    its newest failure.

    \b
    Examples:
      fencepost workflows show 7
      fencepost workflows show 7 --json | jq '.steps[].name'

    Exits with 4 when there is no such workflow.
    """
    from fencepost.cli import _workflow_screen as workflow_screen  # noqa: PLC0415
    from fencepost.cli import job_commands  # noqa: PLC0415 - As above.

    with job_commands.looking() as connection:
        workflow = workflow_screen.read_workflow(connection, workflow_id)
    if json_output:
        answer_json(workflow)
    else:
        answer_rich(workflow_screen.workflow_screen(workflow))


@app.command()
def cancel(
    workflow_ids: SomeIds = None,
    state: StateOption = None,
    name: NameOption = None,
    waits: WaitsOption = None,
    tag: TagOption = None,
    arg: ArgumentOption = None,
    yes: YesOption = False,
    actor: ActorOption = None,
    json_output: JsonOption = False,
) -> None:
    """Cancel workflows, by id or by filter: a waiting one ends at once, the next step of a running one is
    refused. Those that a filter selects are counted first, and confirmed.

    \b
    Examples:
      fencepost workflows cancel 7 8
      fencepost workflows cancel --name fulfil --waits event
      fencepost workflows cancel --tag import --state pending --yes

    Exits with 4 when there is no such workflow, with 1 when one has ended already.
    """
    from fencepost.cli import job_commands  # noqa: PLC0415 - As above.
    from fencepost.cli.exit_codes import ExitCode, UserError  # noqa: PLC0415

    wanted = _filter(state, name, waits, tag, arg)
    if bool(workflow_ids) == bool(state or name or waits or tag or arg):
        raise UserError("Name workflows by id, or select them by a filter.", ExitCode.USAGE)
    with job_commands.acting() as connection:
        if workflow_ids:
            act = job_commands.cancel(connection, job_commands.actor_name(actor))
            job_commands.for_each("workflow", workflow_ids, act, as_json=json_output)
            return
        from fencepost.cli import _workflow_screen as workflow_screen  # noqa: PLC0415

        ids = workflow_screen.live_ids(connection, wanted)
        if ids:
            job_commands.confirm(f"Cancel {len(ids)} workflow{'s' * (len(ids) > 1)}?", yes=yes)
        counts = workflow_screen.cancel_all(connection, ids, job_commands.actor_name(actor))
    if json_output:
        answer_json({"selected": len(ids), **counts})
    else:
        told = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
        answer(f"{len(ids)} workflows: {told or 'none to cancel'}")


@app.command("retry-from")
def retry_from(
    workflow_id: WorkflowId,
    step: Annotated[str, typer.Argument(metavar="STEP", help="The first step to run again.")],
    actor: ActorOption = None,
    json_output: JsonOption = False,
) -> None:
    """Run a dead or cancelled workflow again from a step: that one and all later ones are dropped.

    \b
    Examples:
      fencepost workflows retry-from 7 ship

    Exits with 4 when there is no such workflow or step, with 1 when a step that stays was undone.
    """
    from fencepost.cli import job_commands  # noqa: PLC0415 - As above.
    from fencepost.kernel import _workflow as workflow  # noqa: PLC0415
    from fencepost.kernel.drivers import run  # noqa: PLC0415

    with job_commands.acting() as connection:

        def act(job_id: int) -> str:
            run(connection, workflow.retry_from(job_id, step, job_commands.actor_name(actor)))
            return f"runs again from {step}"

        job_commands.for_each("workflow", [workflow_id], act, as_json=json_output)


@app.command()
def emit(
    event: Annotated[str, typer.Argument(metavar="EVENT", help="The event's name.")],
    payload: Annotated[str, typer.Option("--payload", metavar="JSON", help="What it carries.")] = "null",
    actor: ActorOption = None,
    json_output: JsonOption = False,
) -> None:
    """Emit an event, as an approval does: the workflows that wait for it go on. The first emission stays.

    \b
    Examples:
      fencepost workflows emit approve:7
      fencepost workflows emit paid:7 --payload '{"cents": 500}'

    Exits with 1 when the event was emitted before.
    """
    import json  # noqa: PLC0415 - As above.

    from fencepost.cli import job_commands  # noqa: PLC0415
    from fencepost.cli.exit_codes import ExitCode, UserError  # noqa: PLC0415
    from fencepost.kernel import _event as kernel_event  # noqa: PLC0415
    from fencepost.kernel.drivers import run  # noqa: PLC0415

    try:
        content = json.loads(payload)
    except ValueError as error:
        raise UserError(f"--payload is no JSON document: {error}") from None
    with job_commands.acting() as connection:
        call = kernel_event.emit(event, content, actor=job_commands.actor_name(actor))
        first = run(connection, call)
    if json_output:
        answer_json({"event": event, "emitted": first})
    else:
        answer(f"event {event}: {'emitted' if first else 'was emitted before; the first emission counts'}")
    if not first:
        raise typer.Exit(ExitCode.PROBLEM)


@app.command()
def versions(json_output: JsonOption = False) -> None:
    """Show how many workflows live on which version: a version without any can be dropped from the code.

    \b
    Examples:
      fencepost workflows versions
    """
    from fencepost.cli import _workflow_screen as workflow_screen  # noqa: PLC0415
    from fencepost.cli import job_commands  # noqa: PLC0415 - As above.
    from fencepost.kernel import _workflow as workflow  # noqa: PLC0415
    from fencepost.kernel.drivers import run  # noqa: PLC0415

    with job_commands.looking() as connection:
        found = run(connection, workflow.versions())
    if json_output:
        answer_json([version._asdict() for version in found])
    else:
        answer_rich(workflow_screen.versions_screen(found))


def _filter(
    state: State | None,
    name: str | None,
    waits: Literal["event", "time"] | None,
    tags: list[str] | None,
    arguments: list[str] | None,
) -> WorkflowFilter:
    from fencepost.cli import job_commands  # noqa: PLC0415 - As above.
    from fencepost.kernel._workflow_operator import WorkflowFilter  # noqa: PLC0415

    return WorkflowFilter(state, name, waits, tags or (), job_commands.arguments_of(arguments or ()))
