"""`fencepost jobs`: inspect jobs, and act on those that need an operator."""

from __future__ import annotations

from dataclasses import asdict
from shlex import quote
from typing import Annotated, Literal

import typer

from fencepost.cli.terminal import JsonOption, answer, answer_json, answer_rich

State = Literal["pending", "dispatched", "running", "finished", "dead", "cancelled"]
Ids = Annotated[list[int], typer.Argument(metavar="ID", help="Job ids.")]
SomeIds = Annotated[list[int] | None, typer.Argument(metavar="ID", help="Job ids; or a filter.")]
QueueOption = Annotated[str | None, typer.Option("--queue", help="Of this queue.", show_default=False)]
KindOption = Annotated[str | None, typer.Option("--kind", help="Of this kind.", show_default=False)]
CauseOption = Annotated[
    str | None, typer.Option("--cause", help="Of this cause, as `jobs dead` names it.", show_default=False)
]
TagOption = Annotated[
    list[str] | None, typer.Option("--tag", help="With this tag; with all of several.", show_default=False)
]
ArgumentOption = Annotated[
    list[str] | None,
    typer.Option(
        "--arg",
        metavar="NAME=VALUE",
        help="With this argument, as JSON or as a text. Its handler declares it with search_by.",
        show_default=False,
    ),
]
ActorOption = Annotated[
    str | None,
    typer.Option(
        "--actor", help="The actor to record in the history.", show_default="your login and this machine"
    ),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
RateOption = Annotated[
    float, typer.Option("--rate", min=0.1, help="Maximum number per second.", metavar="NUMBER")
]

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="""Inspect jobs, and decide on those that need attention.

    \b
    Look:
      fencepost jobs list --state running            running jobs, their workers, since when
      fencepost jobs show 7                          all details of one job
      fencepost jobs dead                            what died, by cause

    \b
    Decide:
      fencepost jobs cancel 7
      fencepost jobs replay --cause SMTPException    when its cause is fixed
      fencepost jobs pause mail                      no job of the queue starts; running jobs continue

    Every decision is recorded with your name: fencepost explain 7.
    """,
)


@app.command("list")
def list_jobs(
    state: Annotated[State | None, typer.Option("--state", help="In this state.", show_default=False)] = None,
    queue: QueueOption = None,
    kind: KindOption = None,
    tag: TagOption = None,
    arg: ArgumentOption = None,
    before: Annotated[
        int | None,
        typer.Option("--before", metavar="ID", help="Only entries with a lower id.", show_default=False),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="Maximum number of results.")] = 50,
    json_output: JsonOption = False,
) -> None:
    """List jobs, newest first, one page at a time.

    \b
    Examples:
      fencepost jobs list
      fencepost jobs list --state running --queue mail
      fencepost jobs list --tag import --arg user_id=7
      fencepost jobs list --before 12345 --limit 200         the next page; its end is named by the last
      fencepost jobs list --state dead --json | jq -r '.jobs[].error'
    """
    from fencepost.cli import _job_queries as job_queries  # noqa: PLC0415
    from fencepost.cli import job_commands  # noqa: PLC0415 - Load psycopg, not needed by --help.

    arguments = job_commands.arguments_of(arg or ())
    with job_commands.looking() as connection:
        page = job_queries.read_page(
            connection,
            state=state,
            queue=queue,
            kind=kind,
            before_id=before,
            limit=limit,
            tags=tag or (),
            arguments=arguments,
        )
    if json_output:
        answer_json(page.as_json())
        return
    from fencepost.cli._job_screen import page_screen  # noqa: PLC0415 - Loads rich.

    given = {"state": state, "queue": queue, "kind": kind}
    filters = "".join(f" --{name} {value}" for name, value in given.items() if value)
    filters += "".join(f" --tag {quote(one)}" for one in tag or ())
    filters += "".join(f" --arg {quote(one)}" for one in arg or ())
    answer_rich(page_screen(page, again=f"fencepost jobs list{filters} --limit {limit}"))


@app.command()
def show(job_id: Annotated[int, typer.Argument(metavar="ID")], json_output: JsonOption = False) -> None:
    """Show all details of one job: payload, headers, progress, result, error.

    \b
    Examples:
      fencepost jobs show 7
      fencepost jobs show 7 --json | jq .payload
      fencepost explain 7                  its life instead: every transition and every refusal

    Exits with 4 when there is no such job.
    """
    from fencepost.cli import _job_queries as job_queries  # noqa: PLC0415
    from fencepost.cli import _job_screen as job_screen  # noqa: PLC0415
    from fencepost.cli import job_commands  # noqa: PLC0415 - As above.

    with job_commands.looking() as connection:
        job = job_queries.read_job(connection, job_id)
    if json_output:
        answer_json(job)
    else:
        answer("\n".join(job_screen.job_lines(job)))


@app.command()
def cancel(job_ids: Ids, actor: ActorOption = None, json_output: JsonOption = False) -> None:
    """Cancel jobs. A waiting job ends at once; a running job is asked to stop, and its finish is refused.

    \b
    Examples:
      fencepost jobs cancel 7 8 9

    Exits with 4 when there is no such job, with 1 when one has ended already.
    """
    from fencepost.cli import job_commands  # noqa: PLC0415 - As above.

    with job_commands.acting() as connection:
        act = job_commands.cancel(connection, job_commands.actor_name(actor))
        job_commands.for_each("job", job_ids, act, as_json=json_output)


@app.command()
def retry(job_ids: Ids, actor: ActorOption = None, json_output: JsonOption = False) -> None:
    """Run jobs now: a job waiting for its next try at once, a dead or cancelled one from the beginning.

    \b
    Examples:
      fencepost jobs retry 7

    Exits with 4 when there is no such job, with 1 when one is running or has finished.
    """
    from fencepost.cli import job_commands  # noqa: PLC0415 - As above.

    with job_commands.acting() as connection:
        act = job_commands.retry(connection, job_commands.actor_name(actor))
        job_commands.for_each("job", job_ids, act, as_json=json_output)


Queues = Annotated[list[str], typer.Argument(metavar="QUEUE")]
NewOption = Annotated[bool, typer.Option("--new", help="Also a queue that has had no job yet.")]


@app.command()
def pause(
    queues: Queues, new: NewOption = False, actor: ActorOption = None, json_output: JsonOption = False
) -> None:
    """Pause queues: none of their jobs start. Running jobs continue, and submissions are accepted.

    \b
    Examples:
      fencepost jobs pause mail
      fencepost jobs pause letters --new   before its first job
      fencepost status                     shows which are paused

    Exits with 4 when no job of the queue was ever submitted and no live worker serves it, unless --new says
    that it is to come.
    """
    _to_queues(queues, actor, resume=False, new=new, json_output=json_output)


@app.command()
def resume(queues: Queues, actor: ActorOption = None, json_output: JsonOption = False) -> None:
    """Resume paused queues.

    \b
    Examples:
      fencepost jobs resume mail

    Exits with 4 when there is no such queue.
    """
    _to_queues(queues, actor, resume=True, new=False, json_output=json_output)


@app.command()
def dead(
    queue: QueueOption = None,
    kind: KindOption = None,
    json_output: JsonOption = False,
) -> None:
    """Show dead letters by cause: how many, since when, and the newest error.

    \b
    Examples:
      fencepost jobs dead
      fencepost jobs dead --queue mail --json
      fencepost jobs list --state dead --queue mail          one by one
    """
    from fencepost.cli import _job_queries as job_queries  # noqa: PLC0415
    from fencepost.cli import job_commands  # noqa: PLC0415 - As above.

    with job_commands.looking() as connection:
        causes = job_queries.read_causes(connection, queue=queue, kind=kind)
    if json_output:
        answer_json([asdict(cause) for cause in causes])
        return
    from fencepost.cli._job_screen import causes_screen  # noqa: PLC0415 - Loads rich.

    answer_rich(causes_screen(causes))


BeforeOption = Annotated[
    str | None,
    typer.Option(
        "--before", metavar="TIME", help="Only jobs that died before this time.", show_default="now"
    ),
]
AllOption = Annotated[bool, typer.Option("--all", help="All dead letters.")]


@app.command()
def replay(
    job_ids: SomeIds = None,
    queue: QueueOption = None,
    kind: KindOption = None,
    cause: CauseOption = None,
    before: BeforeOption = None,
    everything: AllOption = False,
    rate: RateOption = 100,
    yes: YesOption = False,
    actor: ActorOption = None,
    json_output: JsonOption = False,
) -> None:
    """Run dead letters again, by id or by filter, at a limited rate.

    \b
    A replay by filter selects what was dead when it began. Repeated with the same --before it replays nothing
    twice: a job that died again died later.

    \b
    Examples:
      fencepost jobs replay 7 8
      fencepost jobs replay --cause SMTPException --queue mail
      fencepost jobs replay --all --rate 20 --yes --before 2030-01-31T12:00:00Z
    """
    from fencepost.cli import _dead_letter_commands as dead_letter_commands  # noqa: PLC0415 - As above.

    chosen = dead_letter_commands.Chosen(job_ids or [], queue, kind, cause, before, everything=everything)
    dead_letter_commands.settle("replay", chosen, per_second=rate, yes=yes, actor=actor, as_json=json_output)


@app.command()
def discard(
    job_ids: SomeIds = None,
    queue: QueueOption = None,
    kind: KindOption = None,
    cause: CauseOption = None,
    before: BeforeOption = None,
    everything: AllOption = False,
    rate: RateOption = 1000,
    yes: YesOption = False,
    actor: ActorOption = None,
    json_output: JsonOption = False,
) -> None:
    """Discard dead letters, by id or by filter: they end as cancelled, and retention prunes them.

    \b
    Examples:
      fencepost jobs discard 7
      fencepost jobs discard --cause ValueError --queue mail
    """
    from fencepost.cli import _dead_letter_commands as dead_letter_commands  # noqa: PLC0415 - As above.

    chosen = dead_letter_commands.Chosen(job_ids or [], queue, kind, cause, before, everything=everything)
    dead_letter_commands.settle("discard", chosen, per_second=rate, yes=yes, actor=actor, as_json=json_output)


def _to_queues(names: list[str], actor: str | None, *, resume: bool, new: bool, json_output: bool) -> None:
    from fencepost.cli import _job_queries as job_queries  # noqa: PLC0415
    from fencepost.cli import job_commands  # noqa: PLC0415 - As above.
    from fencepost.kernel import queue  # noqa: PLC0415
    from fencepost.kernel.drivers import run  # noqa: PLC0415

    with job_commands.acting() as connection:
        name, change = job_commands.actor_name(actor), queue.resume if resume else queue.pause

        def act(queue_name: str) -> str:
            if not new:
                job_queries.require_queue(connection, queue_name)
            run(connection, change(queue_name, name))
            return "resumed" if resume else "paused"

        job_commands.for_each("queue", names, act, as_json=json_output)
