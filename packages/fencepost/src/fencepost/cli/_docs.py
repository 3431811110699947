"""`fencepost docs`: show the documentation's site in a browser."""

from __future__ import annotations

from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Annotated, Any

import typer

from fencepost.cli.exit_codes import ExitCode, UserError
from fencepost.cli.shutdown import interrupted_by_all
from fencepost.cli.terminal import answer, answer_json, logs_json

DIRECTORY = Path("dist/docs")
PORT = 8643


def docs(
    directory: Annotated[
        Path,
        typer.Option("--dir", metavar="DIR", help="The folder of the built site.", file_okay=False),
    ] = DIRECTORY,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="The port; 0 takes a free one.")
    ] = PORT,
) -> None:
    """Show the documentation: serves the built site on 127.0.0.1 until Ctrl-C.

    \b
    The site is no part of a wheel. A release has it as fencepost-docs-VERSION.tar.gz; in a clone of the
    repository `make docs` builds it into dist/docs. It loads nothing from elsewhere.

    \b
    Examples:
      make docs && fencepost docs
      fencepost docs --dir ~/fencepost-docs --port 0
    """
    if not (directory / "index.html").is_file():
        raise UserError(
            f"{directory} has no built documentation (no index.html). Build it by `make docs` in a clone of"
            " the repository, or name the unpacked archive of a release: fencepost docs --dir DIR"
        )
    with interrupted_by_all(), listen(directory, port) as server:
        url = f"http://127.0.0.1:{server.server_address[1]}/"
        if logs_json():
            answer_json({"documentation": url}, indent=None)
        else:
            answer(f"Documentation: {url}")
        server.serve_forever(0.1)


def listen(directory: Path, port: int) -> ThreadingHTTPServer:
    """A server of the folder's files, on loopback alone. Raises UserError if the port is taken."""
    try:
        return ThreadingHTTPServer(("127.0.0.1", port), partial(_Files, directory=str(directory)))
    except OSError as error:
        raise UserError(
            f"Port {port} of 127.0.0.1 cannot be used: {error.strerror}. Name another by --port.",
            ExitCode.PROBLEM,
        ) from error


class _Files(SimpleHTTPRequestHandler):
    """Files of one folder. A folder without an index is not listed, and requests are not logged."""

    def list_directory(self, path: Any) -> None:
        self.send_error(404)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - Named by the base class.
        pass
