"""`fencepost docs`: show the documentation's site in a browser."""

from __future__ import annotations

import zipfile
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

from fencepost.cli.exit_codes import ExitCode, UserError
from fencepost.cli.shutdown import interrupted_by_all
from fencepost.cli.terminal import answer, answer_json, logs_json

BUILT = Path("dist/docs")
"""Where `make docs` puts the site in a clone of the repository."""
PACKAGED = Path(__file__).with_name("documentation.zip")
"""The site of the installed version, in the wheels of a release."""
PORT = 8643


def docs(
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir",
            metavar="DIR",
            help="A folder with a built site.",
            show_default="dist/docs, or the installed documentation",
            file_okay=False,
        ),
    ] = None,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="The port; 0 takes a free one.")
    ] = PORT,
) -> None:
    """Show the documentation: serves its site on 127.0.0.1 until Ctrl-C.

    \b
    Shows the folder that --dir names, or else dist/docs if it has a built site, or else the documentation
    of the installed version, which a released wheel contains. It loads nothing from elsewhere.

    \b
    Examples:
      fencepost docs
      make docs && fencepost docs
      fencepost docs --dir ~/fencepost-docs --port 0
    """
    with interrupted_by_all(), site(directory) as folder, listen(folder, port) as server:
        url = f"http://127.0.0.1:{server.server_address[1]}/"
        if logs_json():
            answer_json({"documentation": url}, indent=None)
        else:
            answer(f"Documentation: {url}")
        server.serve_forever(0.1)


@contextmanager
def site(directory: Path | None, built: Path = BUILT, packaged: Path = PACKAGED) -> Generator[Path]:
    """The folder to show. Raises UserError if there is none."""
    if directory is not None or _is_site(built):
        folder = directory or built
        if not _is_site(folder):
            raise UserError(
                f"{folder} has no built documentation (no index.html). Without --dir, `fencepost docs` shows"
                " the documentation of the installed version."
            )
        yield folder
    elif packaged.is_file():
        with TemporaryDirectory(prefix="fencepost-docs-") as unpacked:
            with zipfile.ZipFile(packaged) as archive:
                archive.extractall(unpacked)
            yield Path(unpacked)
    else:
        raise UserError(
            f"This installation has no documentation, and {built} has none. The wheels of a release contain"
            " it; in a clone of the repository `make docs` builds it."
        )


def _is_site(folder: Path) -> bool:
    return (folder / "index.html").is_file()


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
