"""Where the judge sits: everything that judging needs on this machine, opened and closed together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

from fencepost.judge.data_cache import Cache
from fencepost.judge.judging import Judge
from fencepost.judge.language import Language, find_languages, read_specs, site_roots
from fencepost.judge.metrics import JudgeMetrics
from fencepost.judge.sandbox.boxes import Boxes
from fencepost.judge.sandbox.command import Bounds
from fencepost.judge.sandbox.order import Limits, Site
from fencepost.judge.settings import JudgeSettings
from fencepost.judge.store import Keys, Store
from fencepost.judge.workshop import Workshop

TRIAL_OUTPUT_KB = 1024


@asynccontextmanager
async def open_judge(
    settings: JudgeSettings,
    metrics: JudgeMetrics,
    store: Store,
    *,
    languages: Mapping[str, Language] | None = None,
) -> AsyncGenerator[Judge]:
    """A judge with the languages of this machine, unless they are known. Leaves nothing behind."""
    if languages is None:
        offered = settings.offered
        specs = [spec for spec in read_specs() if offered is None or spec.name in offered]
        languages = await asyncio.to_thread(find_languages, specs)
    with Workshop(settings.workspace_root) as workshop:
        site = Site(
            workshop.folder,
            site_roots(languages.values()),
            cgroup=settings.cgroup == "auto",
            outer_uid=settings.outer_uid,
        )
        boxes = Boxes(
            site,
            metrics,
            slots=settings.slots,
            agents=settings.agent,
            bounds=Bounds(settings.stdout_limit_bytes, settings.stderr_limit_bytes),
        )
        async with boxes:
            cache = Cache(store, workshop.folder, bytes_max=settings.cache_max_bytes)
            yield Judge(
                boxes,
                workshop,
                cache,
                languages,
                parallel=settings.parallel_tests,
                trial_limits=_trial_limits(settings),
            )


def open_store(settings: JudgeSettings) -> Store:
    """Where test data lies."""
    keys = Keys(
        endpoint=settings.s3_endpoint,
        region=settings.s3_region,
        access_key=settings.s3_access_key,
        secret_key=settings.s3_secret_key,
    )
    return Store(settings.store, keys)


def _trial_limits(settings: JudgeSettings) -> Limits:
    return Limits(
        cpu_ms=settings.trial_time_ms,
        wall_ms=settings.trial_time_ms * 2 + 2000,
        memory_kb=settings.trial_memory_kb,
        output_kb=TRIAL_OUTPUT_KB,
    )
