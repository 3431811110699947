"""A judge in a test: a store, a workspace, and problems made on the spot."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from fencepost.metrics import Metrics
from fencepost_judge._judging import Judge, Judgement
from fencepost_judge._language import Language, find_languages, read_specs
from fencepost_judge._metrics import JudgeMetrics
from fencepost_judge._problem import Problem
from fencepost_judge._runtime import open_judge
from fencepost_judge._settings import JudgeSettings
from fencepost_judge._store import Store
from fencepost_judge._time_limit import given
from fencepost_judge.packages._reading import read_problem

SAMPLES = Path(__file__).parents[3] / "packages/fencepost-judge/src/fencepost_judge/samples"


@dataclass(frozen=True)
class JudgeSite:
    judge: Judge
    store: Store
    folder: Path
    metrics: Metrics

    def problem(self, files: dict[str, str], **changes: Any) -> Problem:
        place = self.folder / f"problem{len(list(self.folder.iterdir()))}"
        for name, text in files.items():
            path = place / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        read = read_problem(place, self.store)
        # No limit is inferred here: a second, where the files give none.
        problem = read.problem if read.timing is None else given(read.problem, 1)
        return problem.model_copy(update=changes)

    async def sentence(self, problem: Problem, language: str, source: str) -> Judgement:
        spec = next(spec for spec in read_specs() if spec.name == language)
        return await self.judge.judge(problem, language, {spec.source: source.encode()})


@cache
def _languages() -> dict[str, Language]:
    """Asked once: a virtual machine takes its time to say its version."""
    return find_languages()


@asynccontextmanager
async def open_judge_site(
    folder: Path, store: Store | None = None, bubblewrap: Path | None = None, **settings: Any
) -> AsyncGenerator[JudgeSite]:
    metrics = Metrics()
    store = store or Store(folder / "store")
    chosen = JudgeSettings(workspace=folder / "workspace", slots=2, **settings)
    async with open_judge(
        chosen, JudgeMetrics.on(metrics), store, languages=_languages(), bubblewrap=bubblewrap
    ) as judge:
        yield JudgeSite(judge, store, folder, metrics)
