"""The state of the run on a terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fencepost.cli.terminal import logs_json
from fencepost_torture._plan import RunPlan
from fencepost_torture._run import RunMoment
from fencepost_torture._tally import Tally
from fencepost_torture._verdict import Verdict

STYLES: Mapping[Verdict, str] = {"passed": "green", "void": "yellow", "violated": "red"}
Watch = Callable[[RunMoment, Tally], None]


@contextmanager
def live_screen(plan: RunPlan, console: Console) -> Generator[Watch]:
    """Redraws in place on a terminal; prints nothing where there is none, or where the log is JSON."""
    if not console.is_terminal or logs_json():
        yield lambda moment, tally: None
        return
    with Live(Text("starting the servers"), console=console, auto_refresh=False, transient=True) as live:

        def draw(moment: RunMoment, tally: Tally) -> None:
            live.update(screen_of(plan, moment, tally), refresh=True)

        yield draw


def screen_of(plan: RunPlan, moment: RunMoment, tally: Tally) -> RenderableType:
    at = max(0.0, moment.at)
    head = Text.assemble(
        ("torture", "bold"),
        f"  seed {plan.seed}  {moment.phase}  {min(at, plan.seconds):.0f} s"
        + (f" of {plan.seconds:.0f}" if math.isfinite(plan.seconds) else "")
        + "  so far ",
        (moment.verdict, STYLES[moment.verdict]),
    )
    side_by_side = Table.grid(padding=(0, 4))
    side_by_side.add_row(
        _counts("effects", moment.effects), _counts("faults that hit", tally.hit), _refusals(moment)
    )
    return Group(head, "", side_by_side)


def _refusals(moment: RunMoment) -> Table:
    return _counts("refusals", moment.refusals)


def _counts(title: str, counts: Mapping[str, int]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, count in sorted(counts.items()):
        table.add_row(Text(name), f"{count:,}")
    table.add_row(Text("together", style="dim"), f"{sum(counts.values()):,}")
    return table
