"""`fencepost recover`: run after a restore from a backup, or a failover that lost commits."""

from __future__ import annotations

import getpass
from dataclasses import asdict
from typing import Annotated

import typer

from fencepost.cli.terminal import JsonOption, answer, answer_json, progress


def recover(
    actor: Annotated[
        str | None,
        typer.Option("--actor", help="The actor to record in the history.", show_default="your login"),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json_output: JsonOption = False,
) -> None:
    """Invalidate every old token, after a restore or failover that lost commits.

    \b
    A restored database issues the same tokens, attempts and ids a second time. A process that was active in
    the lost time would then be mistaken for a later holder. This raises all of them above every value that
    can have been issued, frees every lease, requeues running jobs, and makes orders that may have been sent
    be looked up at the broker before anything is sent again.

    \b
    Stop every worker and service first; wiping Redis is optional. Then, before you start them:
      MIGRATION_DATABASE_URL=postgresql://owner@db/shop fencepost recover

    \b
    External effects of the lost time are unknown to the database: they were made, and the requests that asked
    for them are forgotten. The command may be repeated.
    """
    from fencepost.cli._schema import migration_url  # noqa: PLC0415
    from fencepost.cli.job_commands import confirm  # noqa: PLC0415 - Loads psycopg, not needed by --help.
    from fencepost.kernel._recover import recover as raise_tokens  # noqa: PLC0415

    confirm("Are all workers and services stopped, and may all leases be dropped?", yes=yes)
    with progress("Raising the tokens"):
        done = raise_tokens(migration_url(), actor or getpass.getuser())
    if json_output:
        answer_json(asdict(done))
        return
    answer(
        f"Tokens go on above {done.floor}. {done.leases} leases are free, {done.jobs} running jobs wait "
        f"again, {done.messages} messages were in progress."
    )
    for name, found in done.components.items():
        answer(f"{name}: {found}")
