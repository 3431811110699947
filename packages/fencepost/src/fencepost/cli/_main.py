"""The console script `fencepost`. It imports only what the bare library installs."""

from __future__ import annotations

import sys

from fencepost._extras import missing_extra


def main() -> None:
    """Run the command line, or say which extra installs what it needs."""
    try:
        from fencepost.cli._app import main as run  # noqa: PLC0415 - It may be missing.
    except ImportError as error:
        needed = missing_extra(error)
        if needed is None:
            raise
        sys.exit(f"fencepost: the command line cannot start: {needed}")
    run()


if __name__ == "__main__":
    main()
