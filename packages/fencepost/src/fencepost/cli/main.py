"""The console script `fencepost`. It imports only what the bare library installs."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line, or say which extra installs what it needs."""
    try:
        from fencepost.cli.app import main as run  # noqa: PLC0415 - It may be missing.
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.exit(
            f"fencepost: the command line needs {error.name}, which is not installed. "
            'Install it with: pip install "fencepost[cli]"'
        )
    run()


if __name__ == "__main__":
    main()
