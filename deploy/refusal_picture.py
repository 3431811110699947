"""Draws docs/pictures/refusal.svg: a late write and its refusal in a real run, as the console draws it.

The run is docs/pictures/refusal.json, the history of a job that `/api/jobs/{id}` answered: one of those that
`fencepost demo` stops past its lease.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import datetime
from html import escape
from pathlib import Path
from textwrap import wrap
from typing import Any

from fencepost_server.console._swim_lanes import WIDE, SwimLanes, draw

PICTURES = Path(__file__).parent.parent / "docs/pictures"
RUN, PICTURE = PICTURES / "refusal.json", PICTURES / "refusal.svg"
FONT = 'font-family="ui-sans-serif, system-ui, sans-serif" font-size="13"'
NAMED = 'role="img" aria-labelledby="t d"'
LINE_HEIGHT, LINE_CHARACTERS, MARGIN = 19, 108, 14
STYLE = """
    .card { fill: #fff; stroke: #d5dbe0 } .ink { fill: #16202a; font-weight: 600 } .faint { fill: #55636f }
    .rule { stroke: #d5dbe0 } .lost { fill: #8a4b00 } .finished { fill: #1d6b34 } .held { fill: #0f6d84 }
    .pause { stroke: #8a4b00; stroke-width: 2; stroke-dasharray: 3 5 } .told { fill: #a8201a }
    .refused { stroke: #a8201a; stroke-width: 4; stroke-linecap: round; fill: none }
    @media (prefers-color-scheme: dark) {
      .card { fill: #1a2128; stroke: #34404b } .ink { fill: #e5ebf0 } .faint { fill: #a3b1bd }
      .rule { stroke: #34404b }
      .lost { fill: #f0b968 } .pause { stroke: #f0b968 } .finished { fill: #7fd39a } .held { fill: #5cc4dd }
      .refused { stroke: #ff9d94 } .told { fill: #ff9d94 }
    }
"""


def drawn(run: dict[str, Any]) -> str:
    """The picture's text."""
    life = [{**moment, "at": datetime.fromisoformat(moment["at"])} for moment in run["life"]]
    picture = draw(life, life[-1]["at"])
    if picture is None:
        raise SystemExit(f"In the run of {RUN} nothing was held.")
    told = [line for sentence in picture.sentences for line in wrap(sentence, LINE_CHARACTERS)]
    height = round(picture.height + len(told) * LINE_HEIGHT + MARGIN)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE.width:.0f} {height}" {FONT} {NAMED}>',
        '  <title id="t">A late write is refused</title>',
        f'  <desc id="d">{escape(" ".join(picture.sentences))}</desc>',
        f"  <style>{STYLE}  </style>",
        f'  <rect class="card" x="1" y="1" width="{WIDE.width - 2:.0f}" height="{height - 2}" rx="8"/>',
        *_lanes(picture),
    ]
    for number, line in enumerate(told):
        y = picture.height + number * LINE_HEIGHT + MARGIN - 6
        lines.append(f'  <text class="told" x="{MARGIN}" y="{y:.0f}">{escape(line)}</text>')
    return "\n".join([*lines, "</svg>", ""])


def _lanes(picture: SwimLanes) -> Iterator[str]:
    for lane in picture.lanes:
        yield f'  <g transform="translate(0 {lane.y + 6:.0f})">'
        yield f'    <text class="ink" x="{MARGIN}" y="14">{escape(lane.name)}</text>'
        yield f'    <line class="rule" x1="{WIDE.left}" x2="{WIDE.width - MARGIN}" y1="10" y2="10"/>'
        for start, end in lane.pauses:
            yield f'    <line class="pause" x1="{start}" x2="{end}" y1="10" y2="10"/>'
        for bar in lane.bars:
            yield f'    <rect class="{bar.ended}" x="{bar.x}" y="0" width="{bar.width}" height="20" rx="4"/>'
            yield f'    <text class="faint" x="{bar.x}" y="-5" font-size="11">{escape(bar.label)}</text>'
        for mark in lane.marks:
            yield f'    <path class="refused" d="M{mark.x - 6:.1f} 4l12 12m0 -12l-12 12"/>'
        yield "  </g>"


def main() -> int:
    PICTURE.write_text(drawn(json.loads(RUN.read_text("utf-8"))), "utf-8")
    sys.stdout.write(f"{PICTURE.name}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
