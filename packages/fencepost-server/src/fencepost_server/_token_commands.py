"""`fencepost tokens`: the tokens with which programs call the APIs of the services."""

from __future__ import annotations

from typing import Annotated

import typer

from fencepost.cli.terminal import JsonOption
from fencepost_server.accounts.calls import TOKEN_DAYS_MAX

Name = Annotated[str, typer.Argument(metavar="NAME", help="The program's name, which the history keeps.")]
Service = Annotated[
    str, typer.Option("--service", metavar="SERVICE", help="The service that it calls: orders, players, ….")
]

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="""The tokens with which programs call the APIs of the services.

    A program of a service submits to it and reads it: it places orders, changes players, sends transactions.
    It decides nothing (resolve, resend, halt), which takes a token of an operator of the console, and it has
    no rights in any other service.

    \b
    Examples:
      fencepost tokens make checkout --service orders
      fencepost tokens list checkout --service orders
      fencepost tokens revoke 7 --service orders
    """,
)


@app.command("make")
def make(
    name: Name,
    service: Service,
    label: Annotated[str, typer.Option("--label", help="What it is for.")] = "command line",
    days: Annotated[
        int, typer.Option("--days", min=1, max=TOKEN_DAYS_MAX, help="How long it is valid.")
    ] = 90,
    json_output: JsonOption = False,
) -> None:
    """Print a new token of a program, once: only its digest is stored. The program is created if it is new.

    \b
    Examples:
      fencepost tokens make checkout --service orders --days 365
    """
    from fencepost.cli.job_commands import acting, actor_name  # noqa: PLC0415 - Not needed by --help.
    from fencepost.kernel.drivers import run  # noqa: PLC0415
    from fencepost_server import token_commands  # noqa: PLC0415
    from fencepost_server.accounts.programs import ProgramRole, programs_of  # noqa: PLC0415

    programs = programs_of(service)
    with acting() as connection:
        call = programs.set_user(name, ProgramRole.PROGRAM, None, actor_name(None), by_service=False)
        run(connection, call)
    token_commands.make_token(programs, name, label, days, json_output=json_output)


@app.command("list")
def list_(name: Name, service: Service, json_output: JsonOption = False) -> None:
    """List the tokens of a program and when each was used; never the tokens themselves.

    \b
    Examples:
      fencepost tokens list checkout --service orders --json
    """
    from fencepost_server import token_commands  # noqa: PLC0415 - Not needed by --help.
    from fencepost_server.accounts.programs import programs_of  # noqa: PLC0415

    token_commands.list_tokens(programs_of(service), name, json_output=json_output)


@app.command("revoke")
def revoke(token_id: Annotated[int, typer.Argument(metavar="ID")], service: Service) -> None:
    """Revoke a token. Exits with 4 when the service has no token with this id.

    \b
    Examples:
      fencepost tokens revoke 7 --service orders
    """
    from fencepost_server import token_commands  # noqa: PLC0415 - Not needed by --help.
    from fencepost_server.accounts.programs import programs_of  # noqa: PLC0415

    token_commands.revoke_token(programs_of(service), token_id)
