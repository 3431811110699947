"""`fencepost recover`: after a restore from a backup, or a failover that lost commits."""

from __future__ import annotations

import getpass
from dataclasses import asdict
from typing import Annotated

import typer

from fencepost.cli.terminal import JsonOption, answer, answer_json, progress


def recover(
    actor: Annotated[
        str | None, typer.Option("--actor", help="Who does it, for the history.", show_default="your login")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json_output: JsonOption = False,
) -> None:
    """Make every old token worthless, after time went back in the database.

    \b
    A restored backup hands out the same tokens, attempts and ids a second time. Whoever was active in the
    lost time would then be mistaken for a later holder. This raises all of them above everything that can
    have been handed out, frees every lease, puts running jobs back, and has orders that may have been sent
    asked about before anything is sent again.

    \b
    Stop every worker and service first; wipe Redis or not, as you like. Then, before you start them:
      MIGRATION_DATABASE_URL=postgresql://owner@db/shop fencepost recover

    \b
    What happened in the lost time outside of the database cannot be known here: effects there were made, and
    the requests that asked for them are forgotten. It may be repeated.
    """
    from fencepost.cli.job_commands import confirm  # noqa: PLC0415 - Loads psycopg, which --help need not.
    from fencepost.cli.schema import migration_url  # noqa: PLC0415
    from fencepost.kernel.recover import recover as raise_tokens  # noqa: PLC0415

    confirm("Every worker and service is stopped, and all leases shall be lost?", yes=yes)
    with progress("Raising the tokens"):
        done = raise_tokens(migration_url(), actor or getpass.getuser())
    if json_output:
        answer_json(asdict(done))
        return
    answer(
        f"Tokens go on above {done.floor}. {done.leases} leases are free, {done.jobs} running jobs wait "
        f"again, {done.messages} messages were under way."
    )
    for name, found in done.components.items():
        answer(f"{name}: {found}")
