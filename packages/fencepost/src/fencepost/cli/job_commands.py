"""The actions of operators on jobs, one by one, and the exit code when some of them were refused."""

from __future__ import annotations

import getpass
import json
import socket
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, TypeVar

import typer

from fencepost import server_addresses
from fencepost.cli._job_screen import plain
from fencepost.cli.database_reader import Reader, reading
from fencepost.cli.exit_codes import ExitCode, UserError
from fencepost.cli.terminal import answer, answer_json
from fencepost.errors import NotFound, Refusal
from fencepost.jobs.dead_letters import settle_all
from fencepost.kernel import dead_letter, job_queries
from fencepost.kernel import job as kernel_job
from fencepost.kernel.call import Call, Json
from fencepost.kernel.drivers import run
from fencepost.settings import Settings

T = TypeVar("T")


@contextmanager
def looking() -> Generator[Reader]:
    """A connection with the viewer's role, which may read."""
    settings = Settings.load()
    addresses = server_addresses.of_this_directory(settings)
    with reading(
        addresses.viewer_url, seconds=settings.connect_seconds, remedy=addresses.remedy
    ) as connection:
        yield connection


@contextmanager
def acting() -> Generator[Reader]:
    """A connection with the services' role, which may call the functions."""
    settings = Settings.load()
    addresses = server_addresses.of_this_directory(settings)
    with reading(
        addresses.service_url, seconds=settings.connect_seconds, remedy=addresses.remedy
    ) as connection:
        yield connection


def actor_name(actor: str | None) -> str:
    """The actor that the history records: the given one, or the login and host."""
    try:
        return actor or f"{getpass.getuser()}@{socket.gethostname()}"
    except (KeyError, OSError):
        return f"cli@{socket.gethostname()}"


def for_each(noun: str, things: Iterable[T], act: Callable[[T], str], *, as_json: bool) -> None:
    """Apply `act` to each and print the outcomes. Exits with 4 when one is not found, with 1 when refused."""
    outcomes: list[dict[str, Any]] = []
    code = ExitCode.OK
    for thing in things:
        try:
            done = act(thing)
            outcomes.append({noun: thing, "outcome": done})
        except Refusal as refusal:
            outcomes.append({noun: thing, "refused": refusal.reason, "why": str(refusal)})
            code = ExitCode.NOT_FOUND if isinstance(refusal, NotFound) else max(code, ExitCode.PROBLEM)
    if as_json:
        answer_json(outcomes)
    else:
        answer("\n".join(_sentence(noun, one) for one in outcomes))
    if code is not ExitCode.OK:
        raise typer.Exit(code)


def _sentence(noun: str, one: dict[str, Any]) -> str:
    if "outcome" in one:
        return f"{noun} {one[noun]}: {one['outcome']}"
    return plain(one["why"])


def cancel(connection: Reader, actor: str) -> Callable[[int], str]:
    """A function that cancels a job by its id, and says whether it ended or was asked to stop."""

    def act(job_id: int) -> str:
        answered = run(connection, kernel_job.cancel(job_id, actor))
        return "cancelled" if answered == "cancelled" else "asked to stop; it ends as cancelled"

    return act


def retry(connection: Reader, actor: str) -> Callable[[int], str]:
    """Run a job now: a waiting one at once, a dead or cancelled one from the beginning."""

    def act(job_id: int) -> str:
        seen = run(connection, job_queries.look(job_id))
        match None if seen is None else seen.state:
            case ("dead" | "cancelled") as state:
                run(connection, kernel_job.replay(job_id, actor, expected=state))
                return "runs again, with all its tries"
            case _:
                run(connection, job_queries.hurry(job_id, actor))
                return "is due now"

    return act


def settle_dead(
    connection: Reader,
    wanted: dead_letter.Filter,
    how: dead_letter.Settling,
    actor: str,
    *,
    per_second: float,
    advance: Callable[[int], object],
) -> Counter[str]:
    """Settle what the filter matches, at a limited rate; returns the count of each outcome."""
    counts: Counter[str] = Counter()

    def send(call: Call[T]) -> T:
        return run(connection, call)

    for settled in settle_all(send, wanted, how, actor, per_second=per_second):
        counts.update(one.outcome for one in settled)
        advance(len(settled))
    return counts


def settle_ids(
    connection: Reader, job_ids: Sequence[int], how: dead_letter.Settling, actor: str
) -> list[dead_letter.Settled]:
    """Replay or discard these dead letters; answers for each what happened."""
    return run(connection, dead_letter.settle(job_ids, how, actor))


def arguments_of(given: Iterable[str]) -> dict[str, Json]:
    """The arguments that a search names, NAME=VALUE each. A value that is no JSON is a text."""
    arguments: dict[str, Json] = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not name or not equals:
            raise UserError(f"{one!r} names no argument; write NAME=VALUE.", ExitCode.USAGE)
        try:
            arguments[name] = json.loads(value)
        except ValueError:
            arguments[name] = value
    return arguments


def moment(text: str | None) -> datetime | None:
    """Parse an option that holds a point in time."""
    if text is None:
        return None
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        raise UserError(f"{text!r} is no moment; write 2030-01-31T12:00:00+00:00.", ExitCode.USAGE) from None
    if parsed.tzinfo is None:
        raise UserError(f"{text!r} has no time zone; add +00:00, or Z, or yours.", ExitCode.USAGE)
    return parsed


def confirm(question: str, *, yes: bool) -> None:
    """Ask for confirmation, unless --yes was given. A script has to give it."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UserError(f"{question} Add --yes to skip this question.", ExitCode.USAGE)
    if not typer.confirm(question, err=True):
        raise typer.Exit(ExitCode.PROBLEM)


@contextmanager
def bar(what: str, total: int) -> Generator[Callable[[int], object]]:
    """A progress bar on stderr; nothing when stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield lambda count: None
        return
    from rich.console import Console  # noqa: PLC0415 - Takes 0.1 s.
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(what, total=total)
        yield lambda count: shown.advance(task, count)
