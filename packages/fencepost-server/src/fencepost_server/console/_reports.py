"""The last runs of the benchmarks and the torture, drawn from the files that they write.

Files are not trusted: whatever one contains, the page still shows the others.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, cast

from fastapi import HTTPException, Request, Response
from fastapi import Path as InPath

from fencepost_server.console._role import Role
from fencepost_server.console.context import ConsoleContext
from fencepost_server.console.page_data import PageData
from fencepost_server.web.forms import readable
from fencepost_server.web.templating import HEADERS

REPORTS_MAX = 50
REPORT_BYTES_MAX = 1 << 20
PAGE_BYTES_MAX = 8 << 20
COUNTS_MAX = 500
"""The most rows of one kind of count: there are fewer faults, reasons and crash points than that."""
DEPTH_MAX = 10
TORTURE = "torture"
COUNTS: Mapping[str, str] = {
    "faults_by_kind": "fault that hit",
    "refusals_by_reason": "refusal",
    "crash_points": "hit of a crash point",
}
PageName = Annotated[str, InPath(max_length=200, description="The file's name, without its ending.")]
# The page of a run is a file, and not one of our templates: it may be rendered, and nothing else. A browser
# does not load a sandboxed page whose opener policy is not the default one.
PAGE_HEADERS: Mapping[str, str] = {
    **{name: value for name, value in HEADERS.items() if name != "Cross-Origin-Opener-Policy"},
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}


def add_pages(context: ConsoleContext) -> None:
    folder = context.fp.settings.data_directory

    @context.router.page("/reports", "reports.html", "Reports")
    async def reports(request: Request) -> PageData:
        """The last runs: figures, goals, and whether they were met."""
        found = await asyncio.to_thread(read_reports, folder)
        tables = {
            "figures": [{"report": one["name"], **row} for one in found for row in one["rows"]],
            "counts": [{"report": one["name"], **row} for one in found for row in one["counts"]],
        }
        return PageData({"reports": found, "folder": str(folder), **tables}, "reports", tuple(tables))

    async def report_page(request: Request, name: PageName) -> Response:
        """The page that a torture run wrote beside its figures."""
        page = await asyncio.to_thread(read_page, folder, name)
        if page is None:
            raise HTTPException(404, "There is no torture report of that name.")
        return Response(page, media_type="text/html; charset=utf-8", headers=dict(PAGE_HEADERS))

    context.router.raw("/api/reports/{name}", report_page, needs=Role.VIEWER, kind="text/html")


def read_reports(folder: Path) -> list[dict[str, Any]]:
    """What `make bench` and `make torture` wrote below the data directory, newest first."""
    found = [path for kind in ("bench", TORTURE) for path in (folder / kind).glob("*.json")]
    files = {path: _changed_at(path) for path in found}
    newest = sorted(files, key=files.__getitem__, reverse=True)
    reports = (_read(path) for path in newest[:REPORTS_MAX])
    return [report for report in reports if report is not None]


def read_page(folder: Path, name: str) -> bytes | None:
    """A page by its name in the torture directory. Only listed names are read, so no path leads out of it."""
    found = {path.stem: path for path in (folder / TORTURE).glob("*.html")}.get(name)
    return None if found is None else _content(found, PAGE_BYTES_MAX)


def shown(report: Mapping[str, Any]) -> dict[str, Any]:
    """A report as values that the page can show; what does not have a report's shape is left out."""
    plain = cast("dict[str, Any]", _plain(report, DEPTH_MAX))
    return {
        **plain,
        "at": _moment(plain.get("at")),
        "quick": plain.get("quick") is True,
        "machine": _mapping(plain.get("machine")),
        "rows": [row for row in _list(plain.get("rows")) if isinstance(row, dict)],
        "goals": list(_goals(plain.get("goals"))),
        # Of a torture: its verdict, what was too easy, broken and counted, and how to repeat it.
        "verdict": _text(plain.get("verdict")),
        "void_because": [str(why) for why in _list(plain.get("void_because"))],
        "violations": list(_violations(plain.get("violations"))),
        "counts": [row for fact in COUNTS for row in _counts(fact, plain.get(fact))],
        "replay": _text(plain.get("replay")),
    }


def _read(path: Path) -> dict[str, Any] | None:
    """A report, or None: a run may still be writing it, and the directory may contain other files."""
    content = _content(path, REPORT_BYTES_MAX)
    try:
        found: Any = json.loads(content or b"")
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not isinstance(cast("dict[str, Any]", found).get("name"), str):
        return None
    kind, page = path.parent.name, path.with_suffix(".html")
    # A run writes its page after its figures. An older page is of an earlier run; this run wrote
    # its own page elsewhere.
    has_page = kind == TORTURE and page.is_file() and _changed_at(page) >= _changed_at(path)
    return {
        **shown(cast("dict[str, Any]", found)),
        "kind": kind,
        # A name that is not printable cannot be part of an address either.
        "page": path.stem if has_page and path.stem.isprintable() else None,
    }


def _content(path: Path, bytes_max: int) -> bytes | None:
    """The content of a regular file only: opening a pipe would wait for its other end."""
    try:
        if not path.is_file() or path.stat().st_size > bytes_max:
            return None
        return path.read_bytes()
    except OSError:
        return None


def _changed_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _plain(value: Any, depth: int) -> Any:
    """Texts that can be encoded, numbers that JSON has, and no deeper nesting than a report has."""
    if isinstance(value, str):
        return readable(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict) and depth:
        facts = cast("dict[str, Any]", value)
        return {readable(name): _plain(one, depth - 1) for name, one in facts.items()}
    if isinstance(value, list) and depth:
        return [_plain(one, depth - 1) for one in _list(value)]
    return None if isinstance(value, dict | list) else value


def _goals(value: Any) -> Iterator[dict[str, Any]]:
    for goal in map(_mapping, _list(value)):
        measured, wanted = _figure(goal.get("measured")), _figure(goal.get("goal"))
        if measured is not None and wanted is not None:
            marks = {"at_most": goal.get("at_most") is True, "met": goal.get("met") is True}
            yield {**goal, "name": str(goal.get("name")), "measured": measured, "goal": wanted, **marks}


def _violations(value: Any) -> Iterator[dict[str, Any]]:
    for violation in map(_mapping, _list(value)):
        if violation:
            yield {**dict.fromkeys(("system", "rule", "what"), "unknown"), **violation}


def _counts(fact: str, value: Any) -> list[dict[str, Any]]:
    """The counts, the most frequent first."""
    counts = {name: count for name, one in _mapping(value).items() if (count := _figure(one)) is not None}
    often = sorted(counts, key=lambda name: (-counts[name], name))
    return [{"of": COUNTS[fact], "name": name, "count": int(counts[name])} for name in often[:COUNTS_MAX]]


def _figure(value: Any) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _moment(value: Any) -> str | None:
    try:
        return datetime.fromisoformat(value).isoformat() if isinstance(value, str) else None
    except ValueError:
        return None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _mapping(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _list(value: Any) -> Sequence[Any]:
    return cast("Sequence[Any]", value) if isinstance(value, list) else ()
