"""Shows that the definition of a language works here: its own test programs are judged in the sandbox."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from fencepost.metrics import Metrics
from fencepost_judge._judging import Judge
from fencepost_judge._language import Language, LanguageSpec
from fencepost_judge._metrics import JudgeMetrics
from fencepost_judge._problem import Problem
from fencepost_judge._runtime import open_judge
from fencepost_judge._settings import JudgeSettings
from fencepost_judge._store import Store
from fencepost_judge._time_limit import given
from fencepost_judge.packages._reading import read_problem

EXPECTED: Mapping[str, str] = {"echo": "AC", "loop": "TLE", "memory": "MLE", "crash": "RE"}
LINE = "one fence\n"
SECONDS = {"loop": 0.5}
OTHER_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class LanguageCheck:
    """One test program: what it should get, what it got, and why."""

    name: str
    expected: str
    verdict: str
    message: str
    time_ms: int
    mem_kb: int

    @property
    def is_right(self) -> bool:
        return self.verdict == self.expected


@asynccontextmanager
async def open_language_checks(
    settings: JudgeSettings, languages: Mapping[str, Language], bubblewrap: Path | None = None
) -> AsyncGenerator[LanguageChecks]:
    with tempfile.TemporaryDirectory(prefix="fencepost-languages-") as scratch:
        folder, store = Path(scratch) / "echo", Store(Path(scratch) / "store")
        folder.mkdir()
        (folder / "1.in").write_text(LINE)
        (folder / "1.ans").write_text(LINE)
        problem = read_problem(folder, store).problem
        metrics = JudgeMetrics.on(Metrics())
        async with open_judge(settings, metrics, store, languages=languages, bubblewrap=bubblewrap) as judge:
            yield LanguageChecks(judge, problem)


@dataclass(frozen=True, slots=True)
class LanguageChecks:
    judge: Judge
    problem: Problem

    async def check(self, spec: LanguageSpec, names: Collection[str] = EXPECTED) -> list[LanguageCheck]:
        """Judge the test programs of the language, or those named. Empty when it has none."""
        if spec.tests is None:
            return []
        return [await self._one(spec, name, EXPECTED[name]) for name in EXPECTED if name in names]

    async def _one(self, spec: LanguageSpec, name: str, expected: str) -> LanguageCheck:
        problem = given(self.problem, SECONDS.get(name, OTHER_SECONDS))
        source = getattr(spec.tests, name).encode()
        got = await self.judge.judge(problem, spec.name, {spec.source: source})
        said = got.message or next((case.message for case in got.cases if case.message), "")
        return LanguageCheck(name, expected, got.verdict, said, got.time_ms, got.mem_kb)
