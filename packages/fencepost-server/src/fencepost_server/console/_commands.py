"""`fencepost console`: the users of the console, and one-time login links."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fencepost.cli.terminal import JsonOption, answer, answer_json, ask_password

if TYPE_CHECKING:
    from fencepost.server_addresses import ServerAddresses

RoleWord = Literal["viewer", "operator", "admin"]
LINK_SECONDS = 3600.0
LOCAL_NAME = "local"
LIST_MAX = 100_000

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="""Users and login links of the console.

    \b
    Examples:
      fencepost console link                      a one-time login link
      fencepost console user ada --role admin     prompts for the password
      fencepost console users
      fencepost console lock ada
    """,
)


@app.command()
def link(
    name: Annotated[str, typer.Option("--name", help="The user to log in.")] = LOCAL_NAME,
    role: Annotated[RoleWord, typer.Option("--role", help="The role, if the user is new.")] = "admin",
    json_output: JsonOption = False,
) -> None:
    """Print a link that lets its bearer into the console once, within an hour.

    \b
    Examples:
      fencepost console link
      fencepost console link --name ada
    """
    from fencepost.server_addresses import of_this_directory  # noqa: PLC0415
    from fencepost.settings import Settings  # noqa: PLC0415 - Load psycopg, which --help need not.

    made = _login_link(of_this_directory(Settings.load()), name, role)
    if json_output:
        answer_json({"name": name, "link": made})
    else:
        answer(made)


@app.command()
def user(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    role: Annotated[RoleWord, typer.Option("--role", help="The user's role.")] = "viewer",
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Read the password from stdin, for scripts.")
    ] = False,
) -> None:
    """Make a user, or give one another role and password. Their sessions end.

    \b
    Examples:
      fencepost console user ada --role admin
      pass show ada | fencepost console user ada --role operator --password-stdin
    """
    from fencepost.cli.job_commands import acting, actor_name  # noqa: PLC0415 - As above.
    from fencepost.kernel.drivers import run  # noqa: PLC0415
    from fencepost_server.accounts.passwords import Passwords  # noqa: PLC0415
    from fencepost_server.console._role import ACCOUNTS, Role  # noqa: PLC0415

    hashed = Passwords().hashed(ask_password(from_stdin=password_stdin))
    with acting() as connection:
        run(connection, ACCOUNTS.set_user(name, Role.named(role), hashed, actor_name(None), by_service=False))
    answer(f"{name} is {role}.")


@app.command()
def users(json_output: JsonOption = False) -> None:
    """List the users of the console.

    \b
    Examples:
      fencepost console users --json
    """
    from fencepost.cli.job_commands import acting  # noqa: PLC0415 - As above.
    from fencepost.kernel.drivers import run  # noqa: PLC0415
    from fencepost_server.console._role import ACCOUNTS  # noqa: PLC0415

    with acting() as connection:
        found = run(connection, ACCOUNTS.users(None, LIST_MAX))
    if json_output:
        answer_json([asdict(one) for one in found])
        return
    for one in found:
        state = "locked out" if one.disabled_at else ("password" if one.has_password else "links only")
        answer(f"{one.name}  {one.role}  {state}")


@app.command()
def lock(name: Annotated[str, typer.Argument(metavar="NAME")]) -> None:
    """Lock a user out: sessions, links and tokens end at once.

    \b
    Examples:
      fencepost console lock ada

    Ends with 4 when there is no such user.
    """
    from fencepost.cli.exit_codes import ExitCode, UserError  # noqa: PLC0415 - As above.
    from fencepost.cli.job_commands import acting, actor_name  # noqa: PLC0415
    from fencepost.errors import NotFound  # noqa: PLC0415
    from fencepost.kernel.drivers import run  # noqa: PLC0415
    from fencepost_server.console._role import ACCOUNTS  # noqa: PLC0415

    with acting() as connection:
        try:
            run(connection, ACCOUNTS.disable_user(name, actor_name(None)))
        except NotFound:
            raise UserError(f"There is no user {name}.", ExitCode.NOT_FOUND) from None
    answer(f"{name} is locked out.")


def announce(context: ServerAddresses, *, to_person: bool) -> dict[str, str]:
    """A one-time login link for the person that started the system."""
    from fencepost.errors import InvalidInput  # noqa: PLC0415

    if not to_person:
        return {}
    try:
        return {"Log in, once": _login_link(context, LOCAL_NAME, "admin")}
    except InvalidInput as error:
        # Another service has an account of this name: it does not become the console's administrator.
        return {"Log in": f"{context.endpoint_url or ''}/console. There is no link: {error}"}


def _login_link(context: ServerAddresses, name: str, role: str) -> str:
    from fencepost.cli.database_reader import reading  # noqa: PLC0415 - As above.
    from fencepost.kernel.drivers import run  # noqa: PLC0415
    from fencepost_server.accounts.secret import new_secret  # noqa: PLC0415
    from fencepost_server.console._role import ACCOUNTS, Role  # noqa: PLC0415

    secret = new_secret()
    call = ACCOUNTS.make_ticket(secret, name, Role.named(role), lifetime_seconds=LINK_SECONDS)
    with reading(context.service_url, remedy=context.remedy) as connection:
        run(connection, call)
    return f"{context.endpoint_url or ''}/console/enter?ticket={secret}"
