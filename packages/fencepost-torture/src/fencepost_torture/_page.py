"""The report as an HTML page: one file, no script, no external resources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

WIDTH = 900
HEIGHT = 180
FAULTS_SHOWN = 500

STYLE = """
  :root { color-scheme: light dark; --ink: #1c2330; --quiet: #667085; --line: #d9dee7; --paper: #ffffff;
          --good: #137a3f; --bad: #b42318; --so: #9a6700; --mark: #2f5fd0; }
  @media (prefers-color-scheme: dark) { :root { --ink: #e6e9ef; --quiet: #98a2b3; --line: #333c4d;
          --paper: #12161f; --good: #4cc38a; --bad: #ff8a80; --so: #e3b341; --mark: #7aa2ff; } }
  body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
         max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
  h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
  .passed { color: var(--good); } .violated { color: var(--bad); } .void { color: var(--so); }
  .figures { display: flex; flex-wrap: wrap; gap: 1.5rem; padding: 0; list-style: none; }
  .figures b { display: block; font-size: 1.6rem; font-variant-numeric: tabular-nums; }
  .figures span, .quiet { color: var(--quiet); }
  table { border-collapse: collapse; width: 100%; } .wide { overflow-x: auto; }
  th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid var(--line); }
  .number { text-align: right; font-variant-numeric: tabular-nums; }
  code, pre { font: 13px/1.4 ui-monospace, monospace; overflow-x: auto; }
  svg { width: 100%; height: auto; } polyline { fill: none; stroke: var(--mark); stroke-width: 2; }
  svg line { stroke: var(--bad); stroke-opacity: .35; } svg text { fill: var(--quiet); font-size: 12px; }
"""
MEANINGS = {
    "passed": "nothing was lost, doubled or out of order, and the run was hard enough to tell",
    "violated": "a promise was broken; the violations say which",
    "void": "nothing was broken, but the run was too easy to prove anything",
}


def page_of(facts: Mapping[str, Any]) -> str:
    verdict = str(facts["verdict"])
    figures = ("effects", "lost", "doubled", "faults", "refusals", "ambiguous")
    parts = [
        f"<h1>Torture, seed {facts['seed']}: <span class='{verdict}'>{verdict}</span></h1>",
        f"<p>{MEANINGS[verdict]}.</p>",
        f"<p class='quiet'>{escape(str(facts['at']))}, faults for {facts['seconds']} s</p>",
        f"<p class='quiet'>all settled {facts['settled_after_seconds']} s after the last of them</p>",
        "<ul class='figures'>" + "".join(_figure(name, facts[name]) for name in figures) + "</ul>",
        _list("Void, because", facts["void_because"]),
        _violations(facts["violations"]),
        "<h2>Effects over time, and the faults</h2>",
        _chart(facts["moments"], [fault["at"] for fault in facts["schedule"]]),
        "<h2>Systems</h2>",
        _table(("system", "effects", "effects_per_second", "violations"), facts["rows"]),
        "<h2>Faults</h2>",
        _table(("kind", "scheduled", "hit"), list(_faults(facts))),
        _counts("Crash points hit", "crash point", facts["crash_points"]),
        _counts("Refusals by reason", "reason", facts["refusals_by_reason"]),
        _counts("Not available on this machine, or not built", "fault", facts["not_available"]),
        "<h2>Replay</h2>",
        f"<pre>{escape(str(facts['replay']))}</pre>",
        f"<h2>Schedule</h2>{_schedule(facts['schedule'])}",
        f"<h2>What the processes said</h2><pre>{escape(facts['log'])}</pre>" if facts["log"] else "",
        f"<p class='quiet'>{escape('; '.join(f'{k} {v}' for k, v in facts['machine'].items()))}</p>",
    ]
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>Torture, seed {facts['seed']}: {verdict}</title><style>{STYLE}</style></head>\n<body>"
        + "\n".join(part for part in parts if part)
        + "\n</body></html>\n"
    )


def _figure(name: str, value: int) -> str:
    return f"<li><b>{value:,}</b><span>{name}</span></li>"


def _list(title: str, lines: Sequence[str]) -> str:
    if not lines:
        return ""
    return f"<h2>{title}</h2><ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>"


def _violations(violations: Sequence[Mapping[str, Any]]) -> str:
    if not violations:
        return ""
    return "<h2>Violations</h2>" + _table(("system", "rule", "key", "what"), violations)


def _faults(facts: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    for kind, scheduled in facts["faults_scheduled"].items():
        yield {"kind": kind, "scheduled": scheduled, "hit": facts["faults_by_kind"].get(kind, 0)}


def _counts(title: str, head: str, counts: Mapping[str, Any]) -> str:
    if not counts:
        return ""
    rows = [{head: name, "": value} for name, value in counts.items()]
    return f"<h2>{title}</h2>" + _table((head, ""), rows)


def _schedule(planned_faults: Sequence[Mapping[str, Any]]) -> str:
    heads = ("at", "kind", "system", "place", "point", "nth", "leases")
    return _table(heads, planned_faults[:FAULTS_SHOWN])


def _table(heads: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str:
    numeric = {name for name in heads if rows and isinstance(rows[0][name], int | float)}
    head = "".join(
        f"<th{' class=number' if name in numeric else ''}>{escape(name.replace('_', ' '))}</th>"
        for name in heads
    )
    body = "".join("<tr>" + "".join(_cell(row[name]) for name in heads) + "</tr>" for row in rows)
    return f"<div class='wide'><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def _cell(value: Any) -> str:
    if isinstance(value, int | float):
        return f"<td class='number'>{value:,}</td>"
    return f"<td>{escape(str(value))}</td>"


def _chart(moments: Sequence[tuple[float, int]], faults: Sequence[float]) -> str:
    """Cumulative effects; a red line is a fault."""
    if len(moments) < 2:
        return "<p class='quiet'>The run was too short for a chart.</p>"
    span = max(moments[-1][0], 0.1)
    most = max(count for _, count in moments) or 1
    points = " ".join(
        f"{max(0.0, at) / span * WIDTH:.1f},{HEIGHT - count / most * (HEIGHT - 20):.1f}"
        for at, count in moments
    )
    lines = "".join(
        f"<line x1='{at / span * WIDTH:.1f}' x2='{at / span * WIDTH:.1f}' y1='20' y2='{HEIGHT}'/>"
        for at in faults
    )
    label = f"{most:,} effects in {span:.0f} s"
    return (
        f"<svg viewBox='0 0 {WIDTH} {HEIGHT + 4}' role='img' aria-label='{label}'>{lines}"
        f"<polyline points='{points}'/><text x='0' y='14'>{label}</text></svg>"
    )
