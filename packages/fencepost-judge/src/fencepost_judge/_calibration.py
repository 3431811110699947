"""How fast this machine runs programs, alone and beside each other, and how judges compare.

A time limit means the same on two judges only when equal programs take equal times there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, cast

from fencepost.errors import InvalidInput
from fencepost_judge._judging import Judge, JudgeFault
from fencepost_judge._problem import ProgramSpec
from fencepost_judge._store import Store
from fencepost_judge.sandbox._run_spec import Limits

ROUNDS = 5
LIMITS = Limits(cpu_ms=20_000, wall_ms=120_000, memory_kb=524_288)
UNEQUAL = 0.1
"""Judges that differ by more than this share give different verdicts near a limit."""
UNSTEADY = 0.1
COUNTING = """#include <stdio.h>
int main(void) {
  unsigned x = 1, s = 0;
  for (int i = 0; i < 200000000; i++) { x ^= x << 13; x ^= x >> 17; x ^= x << 5; s += x; }
  printf("%u\\n", s);
}
"""
WALKING = """#include <stdio.h>
#include <stdlib.h>
#define N (1 << 23)
int main(void) {
  unsigned *next = malloc(N * sizeof *next), x = 1, at = 0;
  for (unsigned i = 0; i < N; i++) next[i] = i;
  for (unsigned i = N - 1; i > 0; i--) {
    x ^= x << 13; x ^= x >> 17; x ^= x << 5;
    unsigned j = x % i, kept = next[i]; next[i] = next[j]; next[j] = kept;
  }
  for (int i = 0; i < 3000000; i++) at = next[at];
  printf("%u\\n", at);
}
"""
INTERPRETED = "s = 0\nfor i in range(4_000_000):\n    s = (s * 31 + i) & 0xFFFF\nprint(s)\n"
PROGRAMS: Mapping[str, tuple[str, str, str]] = {
    "counting": ("c", "main.c", COUNTING),
    "memory": ("c", "main.c", WALKING),
    "python": ("python", "main.py", INTERPRETED),
}
"""Each with its language, its file and its source."""


@dataclass(frozen=True, slots=True)
class Speed:
    """Of one program: its CPU time alone, how far runs are apart, and its time when every box is in use."""

    name: str
    alone_ms: float
    spread: float
    together_ms: float

    @property
    def slowdown(self) -> float:
        return self.together_ms / max(1.0, self.alone_ms)


async def measure(judge: Judge, store: Store, boxes: int) -> list[Speed]:
    """The programs whose language is installed. Raises InvalidInput when one does not run."""
    return [
        await _speed(judge, store, name, boxes)
        for name, (language, _, _) in PROGRAMS.items()
        if language in judge.languages
    ]


async def _speed(judge: Judge, store: Store, name: str, boxes: int) -> Speed:
    language, file, source = PROGRAMS[name]
    spec = ProgramSpec(name=name, files={file: store.put(source.encode())}, language=language)
    await _once(judge, spec)
    alone = [await _once(judge, spec) for _ in range(ROUNDS)]
    together = [
        time_ms
        for _ in range(2)
        for time_ms in await asyncio.gather(*(_once(judge, spec) for _ in range(boxes)))
    ]
    middle = median(alone)
    return Speed(name, middle, (max(alone) - min(alone)) / max(1.0, middle), median(together))


async def _once(judge: Judge, spec: ProgramSpec) -> float:
    try:
        ran = await judge.execute(spec, (), None, limits=LIMITS)
    except JudgeFault as fault:
        raise InvalidInput(f"{spec.name} does not run here: {fault}", field="calibrate") from None
    if ran.outcome.verdict != "OK":
        raise InvalidInput(f"{spec.name} ended with {ran.outcome.verdict}.", field="calibrate")
    return float(ran.outcome.time_ms)


def document(host: str, processor: str, speeds: Sequence[Speed]) -> dict[str, Any]:
    """What `calibrate --json` prints, and `--compare` reads."""
    return {"host": host, "processor": processor, "speeds": [asdict(one) for one in speeds]}


def advice(speeds: Sequence[Speed]) -> list[str]:
    """What makes times unsteady here."""
    said: list[str] = []
    unsteady = [one.name for one in speeds if one.spread > UNSTEADY]
    if unsteady:
        said.append(
            f"Runs of {', '.join(unsteady)} differ by more than {UNSTEADY:.0%}: turn turbo off, pin boxes"
            " (JUDGE_CORES=auto), and run nothing else here."
        )
    slowed = [one.name for one in speeds if one.slowdown > 1 + UNSTEADY]
    if slowed:
        said.append(
            f"With every box in use {', '.join(slowed)} take over {UNSTEADY:.0%} longer: fewer boxes"
            " (JUDGE_SLOTS), or one for each core (JUDGE_CORES=auto)."
        )
    return said


@dataclass(frozen=True, slots=True)
class Compared:
    """A judge beside the median of all: 1.2 takes a fifth longer."""

    host: str
    factors: Mapping[str, float]

    @property
    def is_equal(self) -> bool:
        return all(abs(factor - 1) <= UNEQUAL for factor in self.factors.values())


def compare_judges(documents: Sequence[Mapping[str, Any]]) -> list[Compared]:
    """By what each judge measured with every box in use, as in a contest. Pure."""
    times = [_times(one) for one in documents]
    names = [name for name in times[0] if all(name in one for one in times)] if times else []
    if not names:
        raise InvalidInput("The files have no measured program in common.", field="compare")
    middle = {name: median(one[name] for one in times) for name in names}
    return [
        Compared(str(said.get("host", "?")), {name: own[name] / middle[name] for name in names})
        for said, own in zip(documents, times, strict=True)
    ]


def _times(said: Mapping[str, Any]) -> dict[str, float]:
    try:
        speeds = cast("list[dict[str, Any]]", said["speeds"])
        found = {str(one["name"]): float(one["together_ms"]) for one in speeds}
    except (KeyError, TypeError, ValueError):
        found = {}
    if not found or not all(time_ms > 0 for time_ms in found.values()):
        raise InvalidInput("This is not what `judge calibrate --json` prints.", field="compare")
    return found
