"""`fencepost webhooks`: the URLs that messages are delivered to, their secrets, and what they did not get."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fencepost.cli.exit_codes import ExitCode, UserError
from fencepost.cli.terminal import JsonOption, answer, answer_json

if TYPE_CHECKING:
    from fencepost.kernel.call import Call
    from fencepost.webhooks.calls import WebhookStatus

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="The webhook, and the outbox channel that it delivers.")
]
ActorOption = Annotated[
    str | None,
    typer.Option("--actor", help="Whose name the history keeps.", show_default="you and this machine"),
]
TopicsOption = Annotated[
    list[str] | None,
    typer.Option("--topic", help="What it is told: orders. May be repeated.", show_default=False),
]

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="""Deliver events of the services, and messages of your own, to URLs, each request signed.

    \b
    Look:
      fencepost webhooks list
      fencepost webhooks dead audit                           messages that it did not get

    \b
    Decide, in all processes at once:
      fencepost webhooks add audit https://audit.internal/in --topic orders
      fencepost webhooks rotate audit                         a new secret; the old one signs for a day more
      fencepost webhooks pause audit
      fencepost webhooks redeliver 7

    A webhook delivers the outbox channel of its name. `fp.outbox.put(tx, "audit", ...)` goes there too.
    """,
)


@app.command()
def add(
    name: Name,
    url: Annotated[
        str | None,
        typer.Argument(metavar="URL", help="Without one, a program of yours takes the channel's messages."),
    ] = None,
    topics: TopicsOption = None,
    actor: ActorOption = None,
    json_output: JsonOption = False,
) -> None:
    """Register a webhook and print its secret, once: the receiver verifies requests with it.

    \b
    Examples:
      fencepost webhooks add audit https://audit.internal/in --topic orders
      fencepost webhooks add books --topic orders             for `outbox.hold("books", ...)`

    Exits with 1 when there is one with this name.
    """
    from fencepost.cli import job_commands  # noqa: PLC0415 - Loads psycopg, not needed by --help.
    from fencepost.webhooks import calls  # noqa: PLC0415

    secret = _acted(calls.add(name, _checked(url), topics or [], job_commands.actor_name(actor)))
    _tell_secret(name, "added", secret, json_output=json_output)


@app.command("list")
def list_webhooks(json_output: JsonOption = False) -> None:
    """List the webhooks, never their secrets. Of a URL only the host is shown: the rest may hold a key.

    \b
    Examples:
      fencepost webhooks list --json | jq -r '.[] | select(.dead > 0).name'
    """
    from fencepost.cli import job_commands  # noqa: PLC0415 - As above.
    from fencepost.kernel.drivers import run  # noqa: PLC0415
    from fencepost.webhooks import calls  # noqa: PLC0415

    with job_commands.looking() as connection:
        found = run(connection, calls.listing())
    if json_output:
        answer_json([asdict(one) for one in found])
    else:
        answer("\n".join(_line(one) for one in found) or "No webhooks.")


@app.command()
def dead(
    name: Name,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="Maximum number of results.")] = 50,
    json_output: JsonOption = False,
) -> None:
    """List the messages that a webhook did not get, newest first; `redeliver` sends one again.

    \b
    Examples:
      fencepost webhooks dead audit
    """
    from fencepost.cli import job_commands  # noqa: PLC0415 - As above.
    from fencepost.kernel.drivers import run  # noqa: PLC0415
    from fencepost.webhooks import calls  # noqa: PLC0415

    with job_commands.looking() as connection:
        found = run(connection, calls.dead_messages(name, limit))
    if json_output:
        answer_json([asdict(one) for one in found])
        return
    lines = (
        f"{one.id:>8}  {one.settled_at:%Y-%m-%d %H:%M:%S}  {one.key or '-'}  {one.attempts} tries"
        f"  {one.last_error}"
        for one in found
    )
    answer("\n".join(lines) or "No dead messages.")


@app.command()
def change(
    name: Name,
    url: Annotated[
        str | None, typer.Option("--url", help="Where it is from now on.", show_default=False)
    ] = None,
    topics: TopicsOption = None,
    actor: ActorOption = None,
    json_output: JsonOption = False,
) -> None:
    """Change the URL or the topics of a webhook. Waiting messages go to the new URL.

    Exits with 4 when there is no such webhook.

    \b
    Examples:
      fencepost webhooks change audit --url https://audit.internal/v2/in
    """
    from fencepost.cli import job_commands  # noqa: PLC0415 - As above.
    from fencepost.webhooks import calls  # noqa: PLC0415

    call = calls.change(name, job_commands.actor_name(actor), url=_checked(url), topics=topics)
    _tell_secret(name, "changed", _acted(call), json_output=json_output)


@app.command()
def rotate(
    name: Name,
    overlap: Annotated[
        float, typer.Option("--overlap", metavar="SECONDS", min=0, help="How long the old secret signs too.")
    ] = 86_400,
    actor: ActorOption = None,
    json_output: JsonOption = False,
) -> None:
    """Make a new secret and print it, once. Until the overlap ends, every request is signed with both.

    Give the new secret to the receiver within the overlap and no request is refused. With --overlap 0 the old
    one ends at once: requests that the receiver refuses with 401 or 403 meanwhile are tried again.

    \b
    Examples:
      fencepost webhooks rotate audit --overlap 3600
    """
    from fencepost.cli import job_commands  # noqa: PLC0415 - As above.
    from fencepost.webhooks import calls  # noqa: PLC0415

    secret = _acted(calls.rotate(name, overlap, job_commands.actor_name(actor)))
    _tell_secret(name, "rotated", secret, json_output=json_output)


@app.command()
def pause(name: Name, actor: ActorOption = None, json_output: JsonOption = False) -> None:
    """Deliver nothing until `resume`. Messages are kept. Exits with 4 when there is no such webhook.

    \b
    Examples:
      fencepost webhooks pause audit
    """
    _set_paused(name, actor, is_paused=True, json_output=json_output)


@app.command()
def resume(name: Name, actor: ActorOption = None, json_output: JsonOption = False) -> None:
    """Deliver again, from the first message that waits.

    \b
    Examples:
      fencepost webhooks resume audit
    """
    _set_paused(name, actor, is_paused=False, json_output=json_output)


@app.command()
def remove(name: Name, actor: ActorOption = None, json_output: JsonOption = False) -> None:
    """Remove a webhook and its secrets. Messages that wait for it end as dead.

    \b
    Examples:
      fencepost webhooks remove audit
    """
    from fencepost.cli import job_commands  # noqa: PLC0415 - As above.
    from fencepost.webhooks import calls  # noqa: PLC0415

    ended = _acted(calls.remove(name, job_commands.actor_name(actor)))
    _tell({"webhook": name, "dead": ended}, f"webhook {name}: removed, {ended} dead", json_output=json_output)


@app.command()
def redeliver(
    message_ids: Annotated[list[int], typer.Argument(metavar="ID", help="Dead messages.")],
    actor: ActorOption = None,
    json_output: JsonOption = False,
) -> None:
    """Deliver dead messages again, with the same Idempotency-Key. Exits with 4 when one is not found.

    \b
    Examples:
      fencepost webhooks redeliver 7 8
    """
    from fencepost.cli import job_commands  # noqa: PLC0415 - As above.
    from fencepost.kernel.drivers import run  # noqa: PLC0415
    from fencepost.webhooks import calls  # noqa: PLC0415

    who = job_commands.actor_name(actor)
    with job_commands.acting() as connection:
        job_commands.for_each(
            "message",
            message_ids,
            lambda message_id: f"waits again as {run(connection, calls.redeliver(message_id, who))}",
            as_json=json_output,
        )


def _set_paused(name: str, actor: str | None, *, is_paused: bool, json_output: bool) -> None:
    from fencepost.cli import job_commands  # noqa: PLC0415 - As above.
    from fencepost.webhooks import calls  # noqa: PLC0415

    _acted(calls.pause(name, job_commands.actor_name(actor), is_paused=is_paused))
    word = "paused" if is_paused else "resumed"
    _tell({"webhook": name, "paused": is_paused}, f"webhook {name}: {word}", json_output=json_output)


def _acted(call: Call[Any]) -> Any:
    from fencepost.cli import job_commands  # noqa: PLC0415 - As above.
    from fencepost.kernel.drivers import run  # noqa: PLC0415

    with job_commands.acting() as connection, _known():
        return run(connection, call)


@contextmanager
def _known() -> Generator[None]:
    """Turns NotFound into an error with exit code 4, and a name that is taken into one that says so."""
    from fencepost.errors import Duplicate, NotFound  # noqa: PLC0415 - As above.

    try:
        yield
    except NotFound as error:
        raise UserError(f"There is no webhook {error.subject}.", ExitCode.NOT_FOUND) from None
    except Duplicate as error:
        raise UserError(
            f"There is a webhook {error.subject} already: change it, or remove it first."
        ) from None


def _checked(url: str | None) -> str | None:
    from fencepost.outbox.settings import OutboxSettings  # noqa: PLC0415 - As above.
    from fencepost.webhooks.addresses import checked_url  # noqa: PLC0415

    return None if url is None else checked_url(url, loopback=OutboxSettings.load().webhook_loopback)


def _tell(facts: dict[str, Any], line: str, *, json_output: bool) -> None:
    if json_output:
        answer_json(facts)
    else:
        answer(line)


def _tell_secret(name: str, done: str, secret: str | None, *, json_output: bool) -> None:
    """A secret is the only output, so that it can be piped to where it is kept."""
    _tell({"webhook": name, "secret": secret}, secret or f"webhook {name}: {done}", json_output=json_output)


def _line(one: WebhookStatus) -> str:
    remarks = [
        f"topics {', '.join(one.topics)}" if one.topics else "",
        "paused" if one.paused_at else "",
        f"{one.secrets} secrets until {one.rotation_ends_at:%Y-%m-%d %H:%M}" if one.rotation_ends_at else "",
        f"{one.dead} dead" if one.dead else "",
    ]
    return "  ".join([f"{one.name:<20}", one.host or "(taken by a program)", *filter(None, remarks)])
