"""`fencepost explain`: the history of one job, order, request, message or lease."""

from __future__ import annotations

from typing import Annotated

import typer

from fencepost.cli.terminal import JsonOption, answer, answer_json


def explain(
    subject: Annotated[
        str, typer.Argument(metavar="ID", help="job:7 (or 7), lease:RESOURCE, request:SCOPE/KEY, ...")
    ],
    json_output: JsonOption = False,
) -> None:
    """Show the history of one job, order, request or lease.

    Every transition, and every refusal with its reason, its meaning and its remedy.

    \b
    Examples:
      fencepost explain 7                          job 7
      fencepost explain lease:signer:0xabc         its owners, since when, with which token
      fencepost explain request:player:7/req-9     one idempotent request
      fencepost explain outbox:42 --json           one message

    Exits with 4 when nothing is found under this name.
    """
    from fencepost import server_addresses  # noqa: PLC0415 - Load psycopg, not needed by --help.
    from fencepost.cli import _timeline as timeline  # noqa: PLC0415
    from fencepost.cli.database_reader import reading  # noqa: PLC0415
    from fencepost.settings import Settings  # noqa: PLC0415

    name = timeline.subject_of(subject)
    settings = Settings.load()
    addresses = server_addresses.of_this_directory(settings)
    with reading(
        addresses.viewer_url, seconds=settings.connect_seconds, remedy=addresses.remedy
    ) as connection:
        moments = timeline.read_timeline(connection, name)
        remedies = timeline.read_remedies(connection, moments)
    if json_output:
        answer_json(timeline.as_json(name, moments, remedies))
    else:
        answer("\n".join(timeline.as_lines(name, moments, remedies)))
