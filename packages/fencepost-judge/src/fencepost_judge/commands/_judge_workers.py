"""`fencepost judge workers`: the judge workers, their languages and their load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from fencepost.cli.terminal import JsonOption, answer, answer_json

if TYPE_CHECKING:
    from fencepost_judge._discovery import ListedWorker


def workers(
    include_gone: Annotated[
        bool, typer.Option("--all", help="Include workers that left or were lost.")
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """List the judge workers, each with its languages, its sandboxes in use and its current work."""
    import asyncio  # noqa: PLC0415 - Not needed by --help.

    found = [one for one in asyncio.run(_workers()) if include_gone or one.state == "alive"]
    if json_output:
        answer_json([asdict(one) for one in found])
    else:
        answer("\n".join(map(_line, found)) or "No workers are registered.")


def _line(one: ListedWorker) -> str:
    load = f"{one.busy} of {one.slots} boxes, {one.running} running, load {one.load_average:.1f}"
    weak = f"  degraded: {len(one.degraded)}" if one.degraded else ""
    return f"{one.state:5}  {one.owner}  {load}  {one.sandbox}{weak}  {', '.join(sorted(one.languages))}"


async def _workers() -> Sequence[ListedWorker]:
    from fencepost.client import Fencepost  # noqa: PLC0415
    from fencepost_judge._runtime import open_directory  # noqa: PLC0415
    from fencepost_judge._settings import JudgeSettings  # noqa: PLC0415

    async with Fencepost.from_env() as fp, open_directory(JudgeSettings.load(), fp) as directory:
        return await directory.workers()
