"""`fencepost judge calibrate`: how fast this judge is, and how judges compare."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fencepost.cli.exit_codes import ExitCode, UserError
from fencepost.cli.terminal import JsonOption, answer, answer_json

if TYPE_CHECKING:
    from fencepost_judge._calibration import Speed


def calibrate(
    files: Annotated[
        list[Path] | None,
        typer.Option("--compare", metavar="FILE", help="Compare files that --json made; repeat it."),
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Measure how fast this machine runs programs, or compare judges.

    \\b
    Runs three programs in the sandbox, alone and in every box at once, and says what makes times unsteady.
    Nothing else should run meanwhile. Compare judges before a contest:
      fencepost judge calibrate --json > judge-1.json                     # on each
      fencepost judge calibrate --compare judge-1.json --compare judge-2.json
    Exits with 1 when two judges differ by more than a tenth.
    """
    import asyncio  # noqa: PLC0415 - Not needed by --help.

    if files:
        _compare(files, as_json=json_output)
        return
    from fencepost_judge._calibration import advice, document  # noqa: PLC0415

    host, processor, speeds = asyncio.run(_measure())
    if json_output:
        answer_json(document(host, processor, speeds))
        return
    answer(f"{host}  {processor}")
    for one in speeds:
        answer(
            f"  {one.name:9} {one.alone_ms:6.0f} ms alone (spread {one.spread:.0%}),"
            f" {one.together_ms:6.0f} ms with every box in use ({one.slowdown:.2f} times)"
        )
    for line in advice(speeds):
        answer(line)


def _compare(files: list[Path], *, as_json: bool) -> None:
    import json  # noqa: PLC0415

    from fencepost.errors import InvalidInput  # noqa: PLC0415
    from fencepost_judge._calibration import compare_judges  # noqa: PLC0415

    try:
        found = compare_judges([json.loads(path.read_text(encoding="utf-8")) for path in files])
    except (OSError, ValueError, InvalidInput) as error:
        raise UserError(str(error)) from None
    if as_json:
        answer_json(
            [{"host": one.host, "factors": dict(one.factors), "equal": one.is_equal} for one in found]
        )
    else:
        for one in found:
            told = "  ".join(f"{name} {factor:.2f}" for name, factor in one.factors.items())
            answer(f"{'ok  ' if one.is_equal else 'FAIL'} {one.host}: {told}")
    if not all(one.is_equal for one in found):
        raise typer.Exit(ExitCode.PROBLEM)


async def _measure() -> tuple[str, str, list[Speed]]:
    import socket  # noqa: PLC0415
    import tempfile  # noqa: PLC0415

    from fencepost.metrics import Metrics  # noqa: PLC0415
    from fencepost_judge._calibration import measure  # noqa: PLC0415
    from fencepost_judge._metrics import JudgeMetrics  # noqa: PLC0415
    from fencepost_judge._runtime import open_judge  # noqa: PLC0415
    from fencepost_judge._settings import JudgeSettings  # noqa: PLC0415
    from fencepost_judge._store import Store  # noqa: PLC0415
    from fencepost_judge.sandbox._probing import probe_machine  # noqa: PLC0415

    settings = JudgeSettings.load()
    report = probe_machine(cgroup=settings.cgroup == "auto")
    if not report.ready:
        raise UserError(f"The sandbox cannot run: {report.error} {report.remedy}")
    with tempfile.TemporaryDirectory(prefix="fencepost-calibrate-") as scratch:
        store = Store(Path(scratch))
        async with open_judge(
            settings, JudgeMetrics.on(Metrics()), store, bubblewrap=report.bubblewrap
        ) as judge:
            return socket.gethostname(), _processor(), await measure(judge, store, settings.slots)


def _processor() -> str:
    """Its model, as the kernel names it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return "unknown processor"
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        "unknown processor",
    )
