"""`fencepost demo`: fill a running system with things to look at."""

from __future__ import annotations

from typing import Annotated

import typer

from fencepost.cli.terminal import JsonOption


def demo(
    seconds: Annotated[
        float | None,
        typer.Option("--seconds", min=0.1, help="Stop after this time.", show_default="until Ctrl-C"),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="The same decisions for the same number.")] = 1,
    only: Annotated[
        str | None,
        typer.Option(
            "--only", metavar="A,B", help="Only these parts, with commas between them.", show_default=False
        ),
    ] = None,
    up: Annotated[bool, typer.Option("--up", help="Also run `fencepost up`, for as long.")] = False,
    clean: Annotated[bool, typer.Option("--clean", help="Remove everything that demos have made.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also on a database that is not local, or has other data.")
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """Fill a running system with things to look at, until Ctrl-C.

    \b
    Jobs that succeed, fail and die, a schedule, a worker that is stopped past its lease and refused, a flow;
    and what each installed service brings: orders at a broker that loses and doubles requests, players,
    signers, a contest. It prints what it does and where to see it.

    \b
    All of it has the mark `demo` (queues, tags, the broker, names that begin with demo-) and nothing else is
    touched. A database on another machine, or one with data that no demo made, is refused without --force.

    \b
    Examples:
      fencepost up                         in another terminal; then:
      fencepost demo
      fencepost demo --up                  both in one
      fencepost demo --seconds 60 --only jobs,orders
      fencepost demo --clean               removes what demos have made

    Exits with 1 when a part has failed, or the database was refused.
    """
    from fencepost.cli.demo import _command  # noqa: PLC0415 - Loads everything, not needed by --help.

    options = _command.Options(
        seconds=seconds,
        seed=seed,
        only=tuple(part.strip() for part in (only or "").split(",") if part.strip()),
        force=force,
        as_json=json_output,
    )
    if clean:
        _command.clean(options)
    elif up:
        _command.run_with_servers(options)
    else:
        _command.run(options)
