"""Output of the commands: answers on stdout, everything else on stderr."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fencepost._log_form import writes_json
from fencepost.redaction import redact_text

if TYPE_CHECKING:
    from rich.console import RenderableType

JsonOption = Annotated[bool, typer.Option("--json", help="Answer in JSON, for machines.")]


def answer(text: str) -> None:
    """Print a line of the command's result on stdout."""
    typer.echo(text)


def answer_json(value: object, *, indent: int | None = 2) -> None:
    """Print a value as JSON on stdout. `indent=None` prints one line."""
    typer.echo(json.dumps(value, indent=indent, default=_json_of, ensure_ascii=False))


def _json_of(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def answer_rich(*parts: RenderableType) -> None:
    """Print tables. Through a pipe they are plain text, as wide as their content."""
    from rich.console import Console  # noqa: PLC0415 - Takes 0.1 s, which --json saves.

    console = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
    for part in parts:
        console.print(part)


def ask_password(*, from_stdin: bool) -> str:
    """Ask for a password twice, without echo; or read the first line of stdin, for scripts."""
    if from_stdin:
        return sys.stdin.readline().rstrip("\n")
    given: str = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    return given


def remark(text: str, *, level: Literal["info", "warning", "error"] = "info") -> None:
    """Print a line on stderr: an event, if the log is JSON. It may quote a URL: passwords are redacted."""
    line = redact_text(text)
    if logs_json():
        moment = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        event = {"event": line, "level": level, "logger": "fencepost.cli", "timestamp": moment}
        line = json.dumps(event, ensure_ascii=False)
    typer.echo(line, err=True)


def logs_json() -> bool:
    """Whether LOG_FORMAT, or log.format of config.yaml once it is read, asks for JSON: then a process that
    runs until it is stopped prints nothing else."""
    return writes_json() or os.environ.get("LOG_FORMAT", "").lower() == "json"


@contextmanager
def progress(what: str) -> Generator[None]:
    """A progress line on stderr, removed when the work is done; nothing when stderr is not a terminal, or the
    log is JSON."""
    if not sys.stderr.isatty() or logs_json():
        yield
        return
    from rich.console import Console  # noqa: PLC0415 - See above.
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        bar.add_task(what, total=None)
        yield
