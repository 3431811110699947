"""`fencepost migrate`: upgrade the database's schema to this code's version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fencepost.cli.exit_codes import ExitCode, UserError
from fencepost.cli.terminal import JsonOption, answer, answer_json, progress

if TYPE_CHECKING:
    from fencepost.cli._schema import SchemaComparison


def migrate(
    check: Annotated[
        bool, typer.Option("--check", help="Only report whether a migration is needed.")
    ] = False,
    only: Annotated[
        str | None,
        typer.Option(
            "--only",
            metavar="A,B",
            help="Only these plugins or components, and the kernel that they need.",
            show_default="everything installed",
        ),
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Upgrade the schema to this code's version: the kernel, the flows, and every installed plugin.

    \b
    Forward only, all or nothing; a concurrent migration waits, and finds nothing to do.
    Uses MIGRATION_DATABASE_URL, then DATABASE_URL, then the `fencepost up` running in this directory.
    The login may create roles, or the roles fencepost_owner, fencepost_app and fencepost_read exist.

    \b
    Examples:
      MIGRATION_DATABASE_URL=postgresql://owner@db/shop fencepost migrate
      fencepost migrate --only kernel      jobs, leases, idempotency keys and the outbox, and nothing else
      fencepost migrate --check && echo "nothing to do"

    With --check it exits with 0 when the schema is current, and with 5 when it is not.
    """
    from fencepost.cli import _schema as schema  # noqa: PLC0415 - Loads psycopg, not needed by --help.
    from fencepost.kernel.migrate import components  # noqa: PLC0415

    url = schema.migration_url()
    wanted = components(tuple(filter(None, (only or "").split(","))))
    if check:
        _report_check(schema.compare(url, wanted), json_output=json_output)
        return
    with progress("Migrating"):
        done = schema.bring_up(url, wanted)
    if json_output:
        answer_json({"applied": done.applied, "version": done.version})
    elif done.applied:
        answer(f"Applied {', '.join(done.applied)}. The schema has version {done.version}.")
    else:
        answer(f"Nothing to apply: the schema has version {done.version}. Functions and grants were renewed.")


def _report_check(comparison: SchemaComparison, *, json_output: bool) -> None:
    if json_output:
        answer_json(
            {
                "fits": comparison.fits,
                "found": comparison.found,
                "wanted": comparison.wanted,
                "pending": comparison.pending,
                "renew": comparison.renew,
            }
        )
        if not comparison.fits:
            raise typer.Exit(ExitCode.SCHEMA)
    elif comparison.fits:
        answer(comparison.describe())
    else:
        raise UserError(comparison.describe(), ExitCode.SCHEMA)
