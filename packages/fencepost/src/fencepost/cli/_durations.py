"""Formats durations for display, in their two largest units."""

from __future__ import annotations

_UNITS = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))


def span(seconds: float | None) -> str:
    """`1 h 5 min`, `42 s`, `1.5 s`, `12 ms`; a dash for None."""
    if seconds is None:
        return "-"
    if abs(seconds) < 1:
        return f"{round(seconds * 1000)} ms"
    if abs(seconds) < 10:
        return f"{seconds:.1f} s"
    sign, left = ("-" if seconds < 0 else ""), round(abs(seconds))
    parts: list[str] = []
    for unit, size in _UNITS:
        count, left = divmod(left, size)
        if count or parts:
            parts.append(f"{count} {unit}" if count else "")
        if len(parts) == 2:
            break
    return sign + " ".join(part for part in parts if part)
