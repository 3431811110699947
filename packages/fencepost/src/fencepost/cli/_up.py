"""`fencepost up`: run the whole system, until Ctrl-C."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fencepost.cli.shutdown import Shutdown
from fencepost.cli.terminal import JsonOption, answer, answer_json, logs_json, remark
from fencepost.redaction import redact_text

if TYPE_CHECKING:
    from fencepost.cli._stack import Stack
    from fencepost.settings import Settings

_LOOK_SECONDS = 1.0


def up(
    directory: Annotated[
        Path | None,
        typer.Option("--directory", help="The data directory of the embedded servers.", show_default=False),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            min=0,
            max=65_535,
            help="The port to listen on; 0 picks a free one. Default: 8642 if it is free.",
            show_default=False,
        ),
    ] = None,
    application: Annotated[
        str | None,
        typer.Option(
            "--app",
            metavar="MODULE",
            help="Also run the jobs of this application, as `fencepost worker` does.",
            show_default=False,
        ),
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Start everything, print one URL, and wait. Ctrl-C stops it all.

    \b
    Without DATABASE_URL a real PostgreSQL and a real Valkey are started in .fencepost, on sockets that only
    you can reach; with it, the servers that it and REDIS_URL name are used. The schema is migrated, and the
    services run as the application role, which cannot write a state table.

    \b
    Examples:
      fencepost up
      fencepost up --port 8080
      fencepost up --app shop.tasks        with a worker for the jobs of shop/tasks.py
      fencepost up --json | head -1        one line with the addresses, for a script
      DATABASE_URL=postgresql://app@db/shop MIGRATION_DATABASE_URL=postgresql://owner@db/shop fencepost up

    \b
    One process does the work of every role: it serves, sends orders, transactions and webhooks, and judges.
    In production these are processes of their own: `fencepost serve`, `fencepost run`, `fencepost judge
    work`.

    \b
    The printed address serves the console at /, the judge's pages at /judge, and /metrics, /healthz and
    /readyz. The link beside it signs you in to the console once, within an hour.
    Exits with 7 when another process uses the directory.
    """
    from fencepost.cli._stack import open_stack  # noqa: PLC0415 - Loads everything, not needed by --help.
    from fencepost.logs import configure_logging  # noqa: PLC0415
    from fencepost.tracing import export_traces  # noqa: PLC0415

    settings, ending = _settings(directory, port), Shutdown()
    configure_logging(level=settings.log_level, form=settings.log_format)
    export_traces("up")
    with ending.listening():
        with open_stack(settings, application) as stack:
            _announce(stack, json_output=json_output or logs_json())
            while not ending.wait(_LOOK_SECONDS):
                stack.keep_alive()
            remark("Stopping.")
        remark("Stopped. Nothing is left running.")


def _settings(directory: Path | None, port: int | None) -> Settings:
    from fencepost.settings import Settings  # noqa: PLC0415 - As above.

    # The services read their own settings from the environment.
    given = {"FENCEPOST_DATA_DIR": directory, "HTTP_PORT": port}
    os.environ.update({name: str(value) for name, value in given.items() if value is not None})
    return Settings.load()


def _announce(stack: Stack, *, json_output: bool) -> None:
    from fencepost.plugin import load, plugins  # noqa: PLC0415 - As above.

    addresses = stack.server_addresses
    announced: dict[str, str] = {}
    for plugin in plugins().values():
        if plugin.announce is not None and addresses.endpoint_url is not None:
            announced.update(load(plugin.announce)(addresses, to_person=not json_output))
    if json_output:
        shown = {
            "database": redact_text(addresses.service_url),
            "redis": addresses.redis_url and redact_text(addresses.redis_url),
        }
        told = {"url": addresses.endpoint_url, "services": stack.urls, "announced": announced, **shown}
        answer_json({**told, "pid": os.getpid()}, indent=None)
        return
    answer(f"Fencepost is up: {addresses.endpoint_url or addresses.service_url}")
    for label, url in announced.items():
        answer(f"{label}: {url}")
    if addresses.endpoint_url is None:
        remark("Without the services over HTTP: install fencepost-server for the console.")
    else:
        remark("This process serves, and executes the work of every role.")
    remark(
        f"Servers: {addresses.origin}. For an overview run `fencepost status` in another terminal. "
        "Ctrl-C stops everything."
    )
