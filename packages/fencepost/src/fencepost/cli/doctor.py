"""`fencepost doctor`: what this machine has and lacks."""

from __future__ import annotations

import typer

from fencepost.cli.exit_codes import ExitCode
from fencepost.cli.terminal import JsonOption, answer, answer_json, progress


def doctor(json_output: JsonOption = False) -> None:
    """What this machine has and lacks.

    \b
    Looks at the servers that could be started here, the ones that DATABASE_URL and REDIS_URL name, the schema
    and the rights of its roles, compilers, sandbox, and the tools of each optional part. Each lack comes with
    its remedy. Changes nothing.

    \b
    Examples:
      fencepost doctor
      fencepost doctor --json | jq '.findings[] | select(.state != "ok")'

    Ends with 0 when all that is required is there, with 1 otherwise.
    """
    from fencepost.cli import doctor_checks, findings  # noqa: PLC0415 - Opens every drawer; help need not.

    with progress("Looking around"):
        found = doctor_checks.examine()
    if json_output:
        answer_json(findings.as_json(found))
    else:
        answer(findings.as_text(found))
    if not findings.is_healthy(found):
        raise typer.Exit(ExitCode.PROBLEM)
