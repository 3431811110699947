"""`fencepost players`: inspect players, and perform operator actions on them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fencepost.cli.terminal import JsonOption, answer, answer_json

PlayerArgument = Annotated[str, typer.Argument(metavar="PLAYER", help="The player's id.")]
LimitOption = Annotated[int, typer.Option("--limit", min=1, max=1000, help="Maximum number of results.")]
RequestOption = Annotated[
    str | None,
    typer.Option(
        "--request-id", help="Repeating the same id has no second effect.", show_default="a new one"
    ),
]
ActorOption = Annotated[
    str | None,
    typer.Option(
        "--actor", help="The actor to record in the history.", show_default="your login and this machine"
    ),
]

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="""Inspect players, and make changes that only an operator may make.

    \b
    Look:
      fencepost players show ann             version, resources, heroes, draws, clears, lessons
      fencepost players inventory ann
      fencepost players history ann          each change, its request and its version
      fencepost players audit                check that the state can be rebuilt from the history

    \b
    Decide:
      fencepost players catalog game.yaml    the items of the game, and its open seasons
      fencepost players grant ann gold=100 item:potion=3
      fencepost players request-ids          requests without an id; `--phase 2` refuses them

    \b
    Connect:
      fencepost players proto                the Twirp service as a .proto file

    Every change goes through the same pipeline as the service's own, once per request id.
    """,
)


@app.command()
def show(player_id: PlayerArgument, json_output: JsonOption = False) -> None:
    """Show one player. Exits with 4 when there is no such player.

    \b
    Examples:
      fencepost players show ann
      fencepost players show ann --json | jq .resources
    """
    from fencepost_players import _command_actions as command_actions  # noqa: PLC0415 - Loads psycopg, not needed by --help.

    facts = command_actions.show(player_id)
    answer_json(facts) if json_output else answer(command_actions.lines(facts))


@app.command()
def inventory(player_id: PlayerArgument, limit: LimitOption = 100, json_output: JsonOption = False) -> None:
    """Show what a player holds: stacks by item, then pieces.

    \b
    Examples:
      fencepost players inventory ann --limit 1000
    """
    from fencepost_players import _command_actions as command_actions  # noqa: PLC0415 - As above.

    held = command_actions.inventory(player_id, limit)
    answer_json(held) if json_output else answer("\n".join(map(command_actions.line, held)) or "Nothing.")


@app.command()
def history(player_id: PlayerArgument, limit: LimitOption = 50, json_output: JsonOption = False) -> None:
    """Show a player's changes, newest first.

    \b
    Examples:
      fencepost players history ann
      fencepost players history ann --json | jq '.[].changes'
    """
    from fencepost_players import _command_actions as command_actions  # noqa: PLC0415 - As above.

    events = command_actions.history(player_id, limit)
    answer_json(events) if json_output else answer("\n".join(map(command_actions.line, events)) or "Nothing.")


@app.command()
def audit(
    player_id: Annotated[str | None, typer.Argument(metavar="PLAYER", show_default="all players")] = None,
    json_output: JsonOption = False,
) -> None:
    """Rebuild what players hold from their history and compare. Exits with 1 when something differs.

    \b
    Examples:
      fencepost players audit
      fencepost players audit ann
    """
    from fencepost_players import _command_actions as command_actions  # noqa: PLC0415 - As above.

    checked, differences = command_actions.audit(player_id)
    if json_output:
        answer_json({"checked": checked, "differences": differences})
    else:
        answer("\n".join([f"{checked} players checked.", *map(command_actions.line, differences)]))
    if differences:
        raise typer.Exit(1)


@app.command()
def proto(
    output: Annotated[
        Path | None, typer.Option("--output", help="The file to write to.", show_default="the terminal")
    ] = None,
) -> None:
    """Write the Twirp service as a .proto file, made from the declared mutations.

    \b
    Examples:
      fencepost players proto --output players.proto
    """
    from fencepost_players._answers import players_proto  # noqa: PLC0415 - As above.

    text = players_proto().text
    if output is None:
        answer(text.rstrip("\n"))
    else:
        output.write_text(text)
        answer(f"Wrote {output}.")


@app.command()
def catalog(file: Annotated[Path, typer.Argument(metavar="FILE", help="YAML.", exists=True)]) -> None:
    """Load the game's catalog from a file; docs/reference/players.md shows one.

    \b
    Examples:
      fencepost players catalog game.yaml
    """
    from fencepost_players import _command_actions as command_actions  # noqa: PLC0415 - As above.

    answer(f"{command_actions.load_catalog(file)} definitions.")


@app.command()
def create(player_id: PlayerArgument, actor: ActorOption = None) -> None:
    """Create a player.

    \b
    Examples:
      fencepost players create ann
    """
    from fencepost_players import _command_actions as command_actions  # noqa: PLC0415 - As above.

    answer_json(command_actions.create(player_id, actor))


@app.command()
def grant(
    player_id: PlayerArgument,
    things: Annotated[list[str], typer.Argument(metavar="NAME=COUNT", help="gold=100, or item:potion=3")],
    source: Annotated[str, typer.Option("--source", help="Why, for the history.")] = "operator",
    request_id: RequestOption = None,
    actor: ActorOption = None,
) -> None:
    """Grant resources and items, for example for a support ticket.

    \b
    Examples:
      fencepost players grant ann gold=100 --source "ticket 4711" --request-id ticket-4711
    """
    from fencepost_players import _command_actions as command_actions  # noqa: PLC0415 - As above.

    answer_json(command_actions.grant(player_id, things, source=source, request_id=request_id, actor=actor))


@app.command()
def request_ids(
    phase: Annotated[
        int | None, typer.Option("--phase", min=1, max=2, help="The phase to switch to.", show_default=False)
    ] = None,
    actor: ActorOption = None,
    json_output: JsonOption = False,
) -> None:
    """Show how many requests came without an id, and the phase: 2 rejects them. 2 is refused while any came.

    \b
    Examples:
      fencepost players request-ids
      fencepost players request-ids --phase 2
    """
    from fencepost_players import _command_actions as command_actions  # noqa: PLC0415 - As above.

    facts = command_actions.request_ids(phase, actor)
    answer_json(facts) if json_output else answer(command_actions.lines(facts))
