"""`fencepost serve`: the services over HTTP. `fencepost run`: the work of services, without HTTP."""

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
    roles: Annotated[
        str | None,
        typer.Option(
            "--with",
            help="Roles whose work is executed here too, with commas between them; all for every role.",
            metavar="A,B",
            show_default="HTTP_ROLES",
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
    """Serve the API and the pages over HTTP, until Ctrl-C. Executes no work, unless --with names its role.

    \b
    Orders are sent by `fencepost run orders`, transactions by `fencepost run nonces`, webhooks by
    `fencepost run webhooks`, submissions are judged by `fencepost judge work`, jobs run in
    `fencepost worker` and flows in `fencepost flows run`.

    \b
    The servers are those of DATABASE_URL and REDIS_URL, or of the `fencepost up` in this directory. The
    database must have been migrated. Any number of these may run, on any number of machines.

    \b
    Examples:
      fencepost serve
      fencepost serve --services orders,nonces --port 8080
      fencepost serve --with orders,webhooks       one process that serves and sends
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
    from fencepost_server._web_service import web_service  # noqa: PLC0415
    from fencepost_server.roles import words_of  # noqa: PLC0415 - Not needed by --help.
    from fencepost_server.web.settings import WebSettings  # noqa: PLC0415

    given = {"HTTP_PORT": port, "HTTP_ROLES": roles}
    os.environ.update({name: str(value) for name, value in given.items() if value is not None})
    settings, ending = Settings.load(), Shutdown()
    configure_logging(level=settings.log_level, form=settings.log_format)
    export_traces("serve")
    with ending.listening():
        server = web_service(
            settings,
            of_this_directory(settings),
            Metrics(),
            only=words_of(services),
            roles=words_of(WebSettings.load().roles),
        )
        server.start()
        freeze_collected_objects()
        try:
            _announce(server.url, json_output=json_output or logs_json())
            while not ending.wait(_LOOK_SECONDS):
                pass
            remark("Stopping.")
        finally:
            server.stop()


def run(
    roles: Annotated[
        list[str],
        typer.Argument(metavar="ROLE", help="orders, nonces, webhooks, judge, or all; several may be named."),
    ],
    json_output: JsonOption = False,
) -> None:
    """Execute the work of services until Ctrl-C: send orders, transactions and webhooks, judge submissions.

    \b
    A role is the name of an installed service that executes something by itself. No requests are served here
    but those for health and metrics (METRICS_PORT). Any number of processes may share a role.

    \b
    Examples:
      fencepost run orders
      fencepost run orders webhooks
    """
    from fencepost_server.roles import run_roles  # noqa: PLC0415 - Not needed by --help.

    run_roles(roles, as_json=json_output)


def _announce(url: str, *, json_output: bool) -> None:
    if json_output:
        answer_json({"url": url, "pid": os.getpid()}, indent=None)
        return
    answer(f"Serving: {url}")
    remark("Ctrl-C stops it.")
