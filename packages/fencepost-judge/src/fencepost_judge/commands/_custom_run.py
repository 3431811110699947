"""`fencepost judge try`: run a program on custom input, without judging it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fencepost.cli.exit_codes import ExitCode, UserError
from fencepost.cli.terminal import JsonOption, answer, answer_json

if TYPE_CHECKING:
    from fencepost_judge._language import LanguageSpec

LOOK_SECONDS = 0.1


def try_out(
    program: Annotated[Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False)],
    given: Annotated[
        Path | None, typer.Option("--input", help="What it reads; without it, only compile.", exists=True)
    ] = None,
    language: Annotated[
        str | None, typer.Option("--language", help="By default from the file's name.")
    ] = None,
    within: Annotated[float, typer.Option("--within", help="Seconds to wait.", min=1)] = 60,
    json_output: JsonOption = False,
) -> None:
    """Compile a program and run it once, in the sandbox of any free worker.

    Nothing is judged or kept. Exits with 1 when it did not succeed, or when no worker ran it in time.
    """
    import asyncio  # noqa: PLC0415 - Not needed by --help.

    spec = _language(program, language)
    text = given.read_text(encoding="utf-8") if given else None
    outcome = asyncio.run(_try(spec, program.read_text(encoding="utf-8"), text, within))
    if json_output:
        answer_json(outcome)
    else:
        answer("\n".join(_lines(outcome)))
    if outcome["verdict"] != "OK":
        raise typer.Exit(ExitCode.PROBLEM)


def _language(program: Path, name: str | None) -> LanguageSpec:
    from fencepost_judge._language import read_specs  # noqa: PLC0415

    for spec in read_specs():
        if spec.name == name or (name is None and program.suffix in spec.extensions):
            return spec
    known = ", ".join(spec.name for spec in read_specs())
    raise UserError(f"{name or program.name} is in no known language. Known: {known}.")


async def _try(spec: LanguageSpec, source: str, given: str | None, within: float) -> dict[str, Any]:
    import asyncio  # noqa: PLC0415

    from fencepost.cli.job_commands import actor_name  # noqa: PLC0415
    from fencepost.client import Fencepost  # noqa: PLC0415
    from fencepost_judge._service import Judging  # noqa: PLC0415
    from fencepost_judge._settings import JudgeSettings  # noqa: PLC0415

    async with Fencepost.from_env() as fp:
        judging = Judging(fp, JudgeSettings.load())
        judging.check_program(spec.name, {spec.source: source})
        job_id = await judging.custom_runs.submit(
            spec.name, {spec.source: source}, given, author=actor_name(None)
        )
        try:
            async with asyncio.timeout(within):
                custom_run = await judging.custom_runs.get(job_id)
                while custom_run.outcome is None:
                    await asyncio.sleep(LOOK_SECONDS)
                    custom_run = await judging.custom_runs.get(job_id)
        except TimeoutError:
            raise UserError(
                f"No worker ran it within {within:g} seconds; see `fencepost judge workers`."
            ) from None
    return dict(custom_run.outcome)


def _lines(outcome: dict[str, Any]) -> list[str]:
    how = f"{outcome['verdict']}  {outcome['time_ms']} ms  {outcome['mem_kb']} kB"
    ended = outcome["exit_signal"] or outcome["exit_code"]
    how += f"  {'signal' if outcome['exit_signal'] else 'exit code'} {ended}" if ended else ""
    parts = (how, outcome["message"], outcome["output"], outcome["errors"])
    return [part.rstrip("\n") for part in parts if part] + (["(cut)"] if outcome["cut"] else [])
