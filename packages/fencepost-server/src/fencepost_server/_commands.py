"""`fencepost serve`: the services over HTTP, on servers that are already running."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from fencepost.cli.shutdown import Shutdown
from fencepost.cli.terminal import JsonOption, answer, answer_json, logs_json, remark

_LOOK_SECONDS = 1.0


def serve(
    services: Annotated[
        str | None,
        typer.Option(
            "--services",
            help="Only these, with commas between them.",
            metavar="A,B",
            show_default="all installed services",
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            min=0,
            max=65_535,
            help="The port to listen on; 0 picks a free one. Default: 8642 if it is free.",
            show_default="HTTP_PORT",
        ),
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Serve the services over HTTP, with their background tasks, until Ctrl-C.

    \b
    The servers are those of DATABASE_URL and REDIS_URL, or of the `fencepost up` in this directory. The
    database must have been migrated. Any number of these may run, on any number of machines.

    \b
    Examples:
      fencepost serve
      fencepost serve --services orders,nonces --port 8080
      HTTP_ADDRESS=0.0.0.0 HTTP_TOKEN=... fencepost serve

    \b
    It also serves /openapi.json, /metrics, /healthz and /readyz.
    """
    from fencepost.gc_tuning import freeze_collected_objects  # noqa: PLC0415
    from fencepost.logs import configure_logging  # noqa: PLC0415
    from fencepost.metrics import Metrics  # noqa: PLC0415
    from fencepost.server_addresses import of_this_directory  # noqa: PLC0415
    from fencepost.settings import Settings  # noqa: PLC0415
    from fencepost.tracing import export_traces  # noqa: PLC0415
    from fencepost_server._web_service import web_service  # noqa: PLC0415 - Not needed by --help.

    if port is not None:
        os.environ["HTTP_PORT"] = str(port)
    settings, ending = Settings.load(), Shutdown()
    configure_logging(level=settings.log_level, form=settings.log_format)
    export_traces("serve")
    only = tuple(filter(None, (services or "").split(",")))
    with ending.listening():
        server = web_service(settings, of_this_directory(settings), Metrics(), only=only)
        server.start()
        freeze_collected_objects()
        try:
            _announce(server.url, json_output=json_output or logs_json())
            while not ending.wait(_LOOK_SECONDS):
                pass
            remark("Stopping.")
        finally:
            server.stop()


def _announce(url: str, *, json_output: bool) -> None:
    if json_output:
        answer_json({"url": url, "pid": os.getpid()}, indent=None)
        return
    answer(f"Serving: {url}")
    remark("Ctrl-C stops it.")
