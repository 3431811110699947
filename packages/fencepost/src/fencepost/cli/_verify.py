"""`fencepost verify`: is a database whole, as after a restore?"""

from __future__ import annotations

from dataclasses import asdict

import typer

from fencepost.cli.exit_codes import ExitCode
from fencepost.cli.terminal import JsonOption, answer, answer_json, progress


def verify(json_output: JsonOption = False) -> None:
    """Check that a database is whole: the test of a backup.

    \b
    Every row of every table is read, jobs, messages, leases and steps may not contradict each other, indexes
    and constraints are valid, no id would be issued again, and the schema is the one of this code. Nothing is
    changed. It reads everything, so run it on a restored copy, with the login that migrates:
      MIGRATION_DATABASE_URL=postgresql://owner@restored/shop fencepost verify

    \b
    Exits with 1 when something is broken.
    """
    from fencepost.cli._schema import compare, migration_url  # noqa: PLC0415
    from fencepost.cli.database_reader import reading  # noqa: PLC0415 - Loads psycopg, not needed by --help.
    from fencepost.kernel._verify import Check  # noqa: PLC0415
    from fencepost.kernel._verify import verify as checks_of  # noqa: PLC0415

    url = migration_url()
    comparison = compare(url)
    schema = Check("differences of the schema", int(not comparison.fits), comparison.describe())
    with progress("Reading every table"), reading(url) as connection:
        checks = [schema, *(checks_of(connection) if comparison.found is not None else ())]
    is_whole = all(check.is_met for check in checks)
    if json_output:
        answer_json({"ok": is_whole, "checks": [asdict(check) for check in checks]})
    else:
        for check in checks:
            told = "none" if check.is_met else f"{check.broken}, such as {check.example}"
            answer(f"  {'✓' if check.is_met else '✗'} {check.what}: {told}")
        answer("The database is whole." if is_whole else "The database is not whole: do not use it.")
    if not is_whole:
        raise typer.Exit(ExitCode.PROBLEM)
