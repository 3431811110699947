"""`fencepost schedules`: what fires when, what it did, and changes at run time."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, cast

import typer

from fencepost.cli.exit_codes import ExitCode, UserError
from fencepost.cli.terminal import JsonOption, answer, answer_json, answer_rich

if TYPE_CHECKING:
    from fencepost._sync_form import Blocking
    from fencepost.cli.database_reader import Reader
    from fencepost.client._schedules import ScheduleControl
    from fencepost.kernel.call import Call
    from fencepost.kernel.schedule import ScheduleStatus

T = TypeVar("T")
Missed = Literal["once", "all", "skip"]
Name = Annotated[str, typer.Argument(metavar="NAME")]
Names = Annotated[list[str], typer.Argument(metavar="NAME", help="Names of schedules.")]
ActorOption = Annotated[
    str | None,
    typer.Option("--actor", help="Whose name the history keeps.", show_default="you and this machine"),
]
ZoneOption = Annotated[
    str | None, typer.Option("--zone", help="A time zone, such as Europe/Berlin.", show_default=False)
]
MissedOption = Annotated[
    Missed | None,
    typer.Option("--missed", help="What happens to ticks while no worker ran.", show_default=False),
]
GraceOption = Annotated[
    float | None,
    typer.Option("--grace", metavar="SECONDS", help="How late a tick may be with skip.", show_default=False),
]
ArgumentsOption = Annotated[
    str | None,
    typer.Option("--arguments", metavar="JSON", help="The arguments of its jobs.", show_default=False),
]

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="""See what fires when, and decide about it.

    \b
    Look:
      fencepost schedules list                       what fires when; also what is paused or retired
      fencepost schedules show nightly               one of them, and the jobs that it submitted

    \b
    Decide, on all workers at once:
      fencepost schedules run nightly                now, beside its ticks
      fencepost schedules pause nightly
      fencepost schedules change nightly --when "0 4 * * *"
      fencepost schedules add extra "*/10 * * * *" --kind report --queue reports

    A schedule of code retires when no live worker declares it any more, and comes back when one does.
    """,
)


@app.command("list")
def list_schedules(json_output: JsonOption = False) -> None:
    """List the schedules: when each fires next and fired last. Times are in UTC.

    \b
    Examples:
      fencepost schedules list
      fencepost schedules list --json | jq -r '.[] | select(.state == "retired").name'
    """
    from fencepost.cli import job_commands  # noqa: PLC0415 - Loads psycopg, not needed by --help.
    from fencepost.kernel import schedule  # noqa: PLC0415
    from fencepost.kernel.drivers import run  # noqa: PLC0415

    with job_commands.looking() as connection:
        found = run(connection, schedule.look())
    if json_output:
        answer_json([_as_json(one) for one in found])
        return
    from fencepost.cli._job_screen import moment_text, table  # noqa: PLC0415 - Loads rich.

    if not found:
        answer("No schedules. Workers declare them when they start: @fp.cron(...) above @fp.job(...).")
        return
    heads = ("schedule", "when", "zone", "missed", "runs", "next", "last", "its job", "")
    rows = [
        (
            one.name,
            one.expression,
            one.zone,
            one.missed,
            one.kind,
            "" if one.retired_at else moment_text(one.next_tick),
            moment_text(one.last_tick),
            one.last_job_id or "",
            "; ".join(_remarks(one)),
        )
        for one in found
    ]
    answer_rich(table(heads, rows))


@app.command()
def show(
    name: Name,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="So many jobs at most.")] = 20,
    json_output: JsonOption = False,
) -> None:
    """Show a schedule, and the jobs that it submitted, newest first.

    \b
    Examples:
      fencepost schedules show nightly
      fencepost schedules show nightly --limit 100 --json | jq '.jobs[].job_id'
      fencepost explain schedule:nightly             who changed, paused and revived it

    Exits with 4 when there is no such schedule.
    """
    from fencepost.cli import job_commands  # noqa: PLC0415 - As above.
    from fencepost.kernel import schedule  # noqa: PLC0415
    from fencepost.kernel.drivers import run  # noqa: PLC0415

    with job_commands.looking() as connection:
        found = run(connection, schedule.look(name))
        if not found:
            raise UserError(f"There is no schedule {name}.", ExitCode.NOT_FOUND)
        jobs = run(connection, schedule.history(name, None, limit))
    if json_output:
        answer_json({**_as_json(found[0]), "jobs": [asdict(one) for one in jobs]})
        return
    from fencepost.cli._job_screen import moment_text, plain, table  # noqa: PLC0415 - Loads rich.

    shown = {key: value for key, value in _as_json(found[0]).items() if value not in (None, "")}
    width = max(map(len, shown))
    answer("\n".join(f"{key:<{width}}  {plain(str(value))}" for key, value in shown.items()))
    if not jobs:
        answer("It has submitted no job that is still kept.")
        return
    heads = ("tick", "job", "state", "by")
    rows = [
        (moment_text(one.tick), one.job_id, one.state or "pruned", one.actor or "its schedule")
        for one in jobs
    ]
    answer_rich(table(heads, rows))


@app.command()
def add(
    name: Name,
    when: Annotated[str, typer.Argument(metavar="WHEN", help='A cron expression, or "every 90s".')],
    kind: Annotated[str, typer.Option("--kind", help="The handler's name.")],
    queue: Annotated[str, typer.Option("--queue", help="Where its jobs wait.")],
    zone: ZoneOption = None,
    missed: MissedOption = None,
    grace: GraceOption = None,
    arguments: ArgumentsOption = None,
    actor: ActorOption = None,
    json_output: JsonOption = False,
) -> None:
    """Add a schedule at run time. It stays until it is removed, whatever the code declares.

    \b
    Examples:
      fencepost schedules add extra "*/10 * * * *" --kind report --queue reports
      fencepost schedules add tick "every 90s" --kind report --queue reports --arguments '{"scope": "eu"}'
    """
    terms = {"zone": zone, "missed": missed, "grace": grace, "arguments": _document(arguments)}
    given = {term: value for term, value in terms.items() if value is not None}

    def act(schedules: ScheduleControl[Blocking], name: str) -> str:
        added = schedules.add(name, when, kind, queue=queue, **cast("Any", given))
        return f"added; fires next at {added.next_tick.isoformat()}"

    _decide([name], act, actor, json_output)


@app.command()
def change(
    name: Name,
    when: Annotated[
        str | None,
        typer.Option("--when", help='A cron expression, or "every 90s".', show_default=False),
    ] = None,
    zone: ZoneOption = None,
    missed: MissedOption = None,
    grace: GraceOption = None,
    arguments: ArgumentsOption = None,
    actor: ActorOption = None,
    json_output: JsonOption = False,
) -> None:
    """Change a schedule at run time. The change counts, also after a deployment, until `reset`.

    \b
    Examples:
      fencepost schedules change nightly --when "0 4 * * *" --zone Europe/Berlin
      fencepost schedules change nightly --missed skip --grace 600
      fencepost schedules reset nightly              what the code declares counts again

    Exits with 4 when there is no such schedule.
    """
    terms = {
        "expression": when,
        "zone": zone,
        "missed": missed,
        "grace": grace,
        "arguments": _document(arguments),
    }
    given = {term: value for term, value in terms.items() if value is not None}

    def act(schedules: ScheduleControl[Blocking], name: str) -> str:
        changed = schedules.change(name, **cast("Any", given))
        return f"changed; fires next at {changed.next_tick.isoformat()}"

    _decide([name], act, actor, json_output)


@app.command()
def reset(names: Names, actor: ActorOption = None, json_output: JsonOption = False) -> None:
    """Undo what was changed at run time: what the code declares counts again.

    \b
    Examples:
      fencepost schedules reset nightly
    """
    _decide(names, lambda schedules, name: _done(schedules.reset(name), "reset"), actor, json_output)


@app.command()
def remove(names: Names, actor: ActorOption = None, json_output: JsonOption = False) -> None:
    """Remove schedules that no live worker declares: those of run time, and retired ones.

    \b
    Examples:
      fencepost schedules remove extra

    Exits with 1 while a live worker declares it: pause it instead.
    """
    _decide(names, lambda schedules, name: _done(schedules.remove(name), "removed"), actor, json_output)


@app.command()
def revive(names: Names, actor: ActorOption = None, json_output: JsonOption = False) -> None:
    """Bring retired schedules back, although no live worker declares them.

    \b
    Examples:
      fencepost schedules revive nightly
    """
    _decide(names, lambda schedules, name: _done(schedules.revive(name), "revived"), actor, json_output)


@app.command("run")
def run_now(names: Names, actor: ActorOption = None, json_output: JsonOption = False) -> None:
    """Submit the jobs of schedules now. Their ticks go on as they were.

    \b
    Examples:
      fencepost schedules run nightly
    """

    def act(schedules: ScheduleControl[Blocking], name: str) -> str:
        job = schedules.run_now(name)
        return f"job {job.job_id}" if job.created else f"job {job.job_id}, which was there already"

    _decide(names, act, actor, json_output)


@app.command()
def pause(names: Names, actor: ActorOption = None, json_output: JsonOption = False) -> None:
    """Let the ticks of schedules pass without a job. They are not made up for.

    \b
    Examples:
      fencepost schedules pause nightly cleanup
    """
    _decide(names, lambda schedules, name: _done(schedules.pause(name), "paused"), actor, json_output)


@app.command()
def resume(names: Names, actor: ActorOption = None, json_output: JsonOption = False) -> None:
    """Fire paused schedules again, from their next tick on.

    \b
    Examples:
      fencepost schedules resume nightly
    """
    _decide(names, lambda schedules, name: _done(schedules.resume(name), "resumed"), actor, json_output)


def _done(answered: None, outcome: str) -> str:
    return outcome


def _decide(
    names: list[str],
    act: Callable[[ScheduleControl[Blocking], str], str],
    actor: str | None,
    as_json: bool,
) -> None:
    from fencepost.cli import job_commands  # noqa: PLC0415 - As above.

    with _schedules(actor) as schedules:
        job_commands.for_each("schedule", names, lambda name: act(schedules, name), as_json=as_json)


@contextmanager
def _schedules(actor: str | None) -> Generator[ScheduleControl[Blocking]]:
    """`fp.schedules` on a connection of this command. It declares no handlers."""
    from fencepost.cli import job_commands  # noqa: PLC0415 - As above.
    from fencepost.client._schedules import ScheduleControl  # noqa: PLC0415
    from fencepost.jobs._handler import Handlers  # noqa: PLC0415
    from fencepost.jobs._scheduler import Schedules  # noqa: PLC0415

    with job_commands.acting() as connection:
        sender = _OneConnection(connection, job_commands.actor_name(actor))
        yield ScheduleControl(sender, Schedules(), Handlers())


class _OneConnection:
    is_blocking = True

    def __init__(self, connection: Reader, owner: str) -> None:
        self._connection = connection
        self.owner = owner

    async def run(self, call: Call[T]) -> T:
        from fencepost.kernel.drivers import run  # noqa: PLC0415 - As above.

        return run(self._connection, call)


def _document(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        parsed = json.loads(text)
    except ValueError as error:
        raise UserError(f"--arguments is no JSON: {error}.", ExitCode.USAGE) from None
    if not isinstance(parsed, dict):
        raise UserError('--arguments must be an object, such as {"scope": "eu"}.', ExitCode.USAGE)
    return cast("dict[str, Any]", parsed)


def _as_json(one: ScheduleStatus) -> dict[str, Any]:
    shown = asdict(one)
    shown.pop("has_keys")
    grace = shown.pop("grace")
    return {**shown, "grace_seconds": grace.total_seconds(), "state": one.state}


def _remarks(one: ScheduleStatus) -> Generator[str]:
    if one.retired_at:
        yield "retired: no worker declares it"
    if one.paused_at:
        yield f"paused by {one.paused_by}"
    if one.changed_by:
        yield f"{'changed' if one.origin == 'code' else 'added'} by {one.changed_by}"
