"""`fencepost doctor`: check what this machine has and what is missing."""

from __future__ import annotations

import typer

from fencepost.cli.exit_codes import ExitCode
from fencepost.cli.terminal import JsonOption, answer, answer_json, progress


def doctor(json_output: JsonOption = False) -> None:
    """Check what this machine has and what is missing.

    \b
    Checks the servers that could be started here, the ones that DATABASE_URL and REDIS_URL name, the schema
    and the privileges of its roles, tools, and what each installed plugin needs. Every missing item comes
    with its remedy. Changes nothing.

    \b
    Examples:
      fencepost doctor
      fencepost doctor --json | jq '.findings[] | select(.state != "ok")'

    Exits with 0 when nothing required is missing, with 1 otherwise.
    """
    from fencepost.cli import _doctor_checks as doctor_checks  # noqa: PLC0415 - Not needed by --help.
    from fencepost.cli import findings  # noqa: PLC0415

    with progress("Looking around"):
        found = doctor_checks.examine()
    if json_output:
        answer_json(findings.as_json(found))
    else:
        answer(findings.as_text(found))
    if not findings.is_healthy(found):
        raise typer.Exit(ExitCode.PROBLEM)
