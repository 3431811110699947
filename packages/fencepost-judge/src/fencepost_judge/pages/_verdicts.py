"""How a verdict is displayed: a word, a shape, and an explanation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shown:
    code: str
    words: str
    kind: str
    """good, part, bad, ours or open: selects the style, besides the word."""


_KNOWN = {
    one.code: one
    for one in (
        Shown("AC", "accepted", "good"),
        Shown("OK", "ran to its end", "good"),
        Shown("PA", "partly accepted", "part"),
        Shown("WA", "wrong answer", "bad"),
        Shown("PE", "presentation error", "bad"),
        Shown("TLE", "time limit exceeded", "bad"),
        Shown("MLE", "memory limit exceeded", "bad"),
        Shown("OLE", "output limit exceeded", "bad"),
        Shown("RE", "run-time error", "bad"),
        Shown("CE", "does not compile", "bad"),
        Shown("SE", "the judge failed", "ours"),
        Shown("SK", "not run", "open"),
        Shown("PENDING", "waiting", "open"),
        Shown("DISPATCHED", "waiting", "open"),
        Shown("RUNNING", "being judged", "open"),
        Shown("DEAD", "the judge failed", "ours"),
        Shown("CANCELLED", "cancelled", "ours"),
    )
}


def verdict_of(code: str | None) -> Shown:
    """A verdict, or the state of a submission that has none yet."""
    if code is None:
        return _KNOWN["PENDING"]
    return _KNOWN.get(code, Shown(code, code.lower(), "open"))


def worth(value: float | None) -> str:
    """Points without a needless fraction."""
    return "" if value is None else f"{value:.6f}".rstrip("0").rstrip(".")
