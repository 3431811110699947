"""The last runs of the benchmarks and the torture, drawn from the files that they leave."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from fastapi import Request

from fencepost.console.place import Place
from fencepost.console.sheet import Sheet

REPORTS_MAX = 50
REPORT_BYTES_MAX = 1 << 20


def add_pages(place: Place) -> None:
    folder = place.fp.settings.data_directory

    @place.desk.page("/reports", "reports.html", "Reports")
    async def reports(request: Request) -> Sheet:
        """The last runs: figures, goals, and whether they were met."""
        found = await asyncio.to_thread(read_reports, folder)
        figures = [{"report": one["name"], **row} for one in found for row in one["rows"]]
        return Sheet({"reports": found, "folder": str(folder), "figures": figures}, "reports", ("figures",))


def read_reports(folder: Path) -> list[dict[str, Any]]:
    """What `make bench` and `make torture` left below the data directory, newest first."""
    files = sorted(
        (path for kind in ("bench", "torture") for path in (folder / kind).glob("*.json")),
        key=lambda path: path.stat().st_mtime,
        reverse=True,
    )
    reports = (_read(path) for path in files[:REPORTS_MAX])
    return [report for report in reports if report is not None]


def _read(path: Path) -> dict[str, Any] | None:
    """A report, or None: a run may be writing it, and people leave other files lying about."""
    try:
        if path.stat().st_size > REPORT_BYTES_MAX:
            return None
        found: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or "name" not in found:
        return None
    report = cast("dict[str, Any]", found)
    return {
        "goals": [],
        "machine": {},
        "at": None,
        "quick": False,
        # Of a torture: its verdict, what was too easy, what was broken, and how to have it again.
        "verdict": None,
        "void_because": [],
        "violations": [],
        "replay": None,
        **report,
        "rows": [row for row in _list(report.get("rows")) if isinstance(row, dict)],
        "kind": path.parent.name,
    }


def _list(value: Any) -> Sequence[Any]:
    return cast("Sequence[Any]", value) if isinstance(value, list) else ()
