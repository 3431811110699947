"""`fencepost status`: the whole system on one screen."""

from __future__ import annotations

from typing import Annotated

import typer

from fencepost.cli.terminal import JsonOption, answer_json, answer_rich


def status(
    json_output: JsonOption = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh until Ctrl-C.")] = False,
    every_seconds: Annotated[
        float,
        typer.Option("--every", min=0.2, max=3600, metavar="SECONDS", help="Refresh interval with --watch."),
    ] = 2.0,
) -> None:
    """Show the whole system on one screen.

    \b
    Queues, leases, the outbox with its lag, and refusals by reason; of the database in DATABASE_URL,
    or of the `fencepost up` running in this directory.

    \b
    Examples:
      fencepost status
      fencepost status --watch --every 5
      fencepost status --json | jq '.queues[] | select(.dead > 0)'
      fencepost status --json --watch        one line of JSON for each look
    """
    from fencepost.cli import _live_status as live_status  # noqa: PLC0415 - Loads psycopg and rich, not needed by --help.

    if watch:
        live_status.watch(every_seconds, as_json=json_output)
        return
    board = live_status.look()
    if json_output:
        answer_json(board.as_json())
    else:
        from fencepost.cli._status_screen import board_screen  # noqa: PLC0415 - As above.

        answer_rich(board_screen(board))
