"""Progress bars for bounded sources, shown while `fencepost flows run` reads them."""

from __future__ import annotations

import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bars

from fencepost.cli.terminal import logs_json
from fencepost.flows._progress import Progress


class ProgressBars:
    """One bar per partition. Drawn on stderr, and only when it is a terminal."""

    def __init__(self, bars: Bars | None) -> None:
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}

    @property
    def are_shown(self) -> bool:
        return self._bars is not None

    def show(self, progress: Sequence[Progress]) -> None:
        if self._bars is None:
            return
        for each in progress:
            if each.sender not in self._tasks:
                self._tasks[each.sender] = self._bars.add_task(each.sender, total=each.extent)
            self._bars.update(self._tasks[each.sender], completed=each.at, total=each.extent)


@contextmanager
def progress_bars(console: Console | None = None) -> Generator[ProgressBars]:
    """Without a terminal, or with a log in JSON, no bars are drawn, and no progress is queried."""
    shown = console or (Console(stderr=True) if sys.stderr.isatty() and not logs_json() else None)
    if shown is None:
        yield ProgressBars(None)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=32),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=shown) as bars:
        yield ProgressBars(bars)
