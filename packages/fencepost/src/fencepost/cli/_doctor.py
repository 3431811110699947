"""`fencepost doctor`: check what this machine has and what is missing."""

from __future__ import annotations

from typing import Annotated

import typer

from fencepost.cli.exit_codes import ExitCode
from fencepost.cli.terminal import JsonOption, answer, answer_json, progress


def doctor(
    server: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Try only this server: does it do what Fencepost relies on?",
        ),
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Check what this machine has and what is missing.

    \b
    Checks the servers that could be started here, the ones that DATABASE_URL and REDIS_URL name, the schema
    and the privileges of its roles, tools, and what each installed plugin needs. Every missing item comes
    with its remedy. Changes nothing. With --server, only that server is tried, in a schema that is dropped
    at the end.

    \b
    Examples:
      fencepost doctor
      fencepost doctor --server postgresql://owner@db.internal/shop
      fencepost doctor --json | jq '.findings[] | select(.state != "ok")'

    Exits with 0 when nothing required is missing, with 1 otherwise.
    """
    from fencepost.cli import _doctor_checks as doctor_checks  # noqa: PLC0415 - Not needed by --help.
    from fencepost.cli import findings  # noqa: PLC0415
    from fencepost.cli.probes._behaviour import probe_behaviour  # noqa: PLC0415

    with progress("Looking around"):
        found = doctor_checks.examine() if server is None else probe_behaviour(server)
    if json_output:
        answer_json(findings.as_json(found))
    else:
        answer(findings.as_text(found))
    if not findings.is_healthy(found):
        raise typer.Exit(ExitCode.PROBLEM)
