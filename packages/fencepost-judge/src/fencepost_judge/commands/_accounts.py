"""`fencepost judge users` and `fencepost judge tokens`: accounts of the judge, and their API tokens."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from fencepost.cli.terminal import JsonOption, answer, answer_json, ask_password
from fencepost_judge._role import RoleWord
from fencepost_server.accounts.calls import TOKEN_DAYS_MAX

if TYPE_CHECKING:
    from fencepost.server_addresses import ServerAddresses

LIST_MAX = 100_000
Name = Annotated[str, typer.Argument(metavar="NAME")]

users_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="""Users, passwords and tokens of the judge.

    \b
    Examples:
      fencepost judge users set ada --role jury
      fencepost judge users password ada        prompts for it; ada can then log in
      fencepost judge users list
      fencepost judge users lock ada
    """,
)
tokens_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="""API tokens of the judge's users.

    \b
    Examples:
      fencepost judge tokens make ada --label laptop
      fencepost judge tokens list ada
      fencepost judge tokens revoke 7
    """,
)


@users_app.command("set")
def set_user(
    name: Name, role: Annotated[RoleWord, typer.Option("--role", help="The user's role.")] = "contestant"
) -> None:
    """Create a user, or change a user's role. As soon as one user exists, every request needs a token."""
    from fencepost.cli.job_commands import acting, actor_name  # noqa: PLC0415 - Not needed by --help.
    from fencepost.kernel.drivers import run  # noqa: PLC0415
    from fencepost_judge._role import ACCOUNTS, JudgeRole  # noqa: PLC0415

    with acting() as connection:
        run(
            connection,
            ACCOUNTS.set_user(name, JudgeRole.named(role), None, actor_name(None), by_service=False),
        )
    answer(f"{name} is {role}.")


@users_app.command("password")
def set_password(
    name: Name,
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Read the password from stdin, for scripts.")
    ] = False,
) -> None:
    """Set a user's password for the pages. Their sessions end.

    Exits with 4 when there is no such user.

    \b
    Examples:
      fencepost judge users password ada
      pass show ada | fencepost judge users password ada --password-stdin
    """
    from fencepost.cli.job_commands import acting, actor_name  # noqa: PLC0415
    from fencepost.kernel.drivers import run  # noqa: PLC0415
    from fencepost_judge._role import ACCOUNTS  # noqa: PLC0415
    from fencepost_server import token_commands  # noqa: PLC0415
    from fencepost_server.accounts.passwords import Passwords  # noqa: PLC0415

    hashed = Passwords().hashed(ask_password(from_stdin=password_stdin))
    with acting() as connection, token_commands.known(f"There is no user {name}."):
        run(connection, ACCOUNTS.set_password(name, hashed, actor_name(None), by_service=False))
    answer(f"{name} has a new password.")


@users_app.command("list")
def list_users(json_output: JsonOption = False) -> None:
    """List all users, including locked ones."""
    from fencepost.cli.job_commands import acting  # noqa: PLC0415
    from fencepost.kernel.drivers import run  # noqa: PLC0415
    from fencepost_judge._role import ACCOUNTS  # noqa: PLC0415

    with acting() as connection:
        found = run(connection, ACCOUNTS.users(None, LIST_MAX))
    if json_output:
        answer_json([asdict(one) for one in found])
        return
    for one in found:
        answer(f"{one.name}  {one.role}{'  locked out' if one.disabled_at else ''}")


@users_app.command("lock")
def lock(name: Name) -> None:
    """Lock a user: all tokens are revoked at once, permanently. Submissions stay.

    Exits with 4 when there is no such user.
    """
    from fencepost.cli.job_commands import acting, actor_name  # noqa: PLC0415
    from fencepost.kernel.drivers import run  # noqa: PLC0415
    from fencepost_judge._role import ACCOUNTS  # noqa: PLC0415
    from fencepost_server import token_commands  # noqa: PLC0415

    with acting() as connection, token_commands.known(f"There is no user {name}."):
        run(connection, ACCOUNTS.disable_user(name, actor_name(None)))
    answer(f"{name} is locked out.")


@tokens_app.command("make")
def make_token(
    name: Name,
    label: Annotated[str, typer.Option("--label", help="What it is for.")] = "command line",
    days: Annotated[
        int, typer.Option("--days", min=1, max=TOKEN_DAYS_MAX, help="How long it is valid.")
    ] = 90,
    json_output: JsonOption = False,
) -> None:
    """Create a token and show it, once: only its digest is stored.

    Exits with 4 when there is no such user.
    """
    from fencepost_judge._role import ACCOUNTS  # noqa: PLC0415
    from fencepost_server import token_commands  # noqa: PLC0415

    token_commands.make_token(ACCOUNTS, name, label, days, json_output=json_output)


@tokens_app.command("list")
def list_tokens(name: Name, json_output: JsonOption = False) -> None:
    """List the tokens of a user and when each was used; never the tokens themselves."""
    from fencepost_judge._role import ACCOUNTS  # noqa: PLC0415
    from fencepost_server import token_commands  # noqa: PLC0415

    token_commands.list_tokens(ACCOUNTS, name, json_output=json_output)


@tokens_app.command("revoke")
def revoke_token(token_id: Annotated[int, typer.Argument(metavar="ID")]) -> None:
    """Revoke a token. Exits with 4 when there is no token with this id."""
    from fencepost_judge._role import ACCOUNTS  # noqa: PLC0415
    from fencepost_server import token_commands  # noqa: PLC0415

    token_commands.revoke_token(ACCOUNTS, token_id)


def announce(addresses: ServerAddresses, *, to_person: bool) -> dict[str, str]:
    """The address of the judge's pages, as `fencepost up` prints it."""
    del to_person  # The address is not secret.
    from fencepost_judge._access import PAGES_ROOT  # noqa: PLC0415

    return {"The judge": f"{addresses.endpoint_url or ''}{PAGES_ROOT}"}
