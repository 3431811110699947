"""Everything that judging needs on this machine, opened and closed together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from fencepost.cli.probes.machine import ThisMachine
from fencepost.client import Fencepost
from fencepost.logs import get_logger
from fencepost_judge._data_cache import Cache
from fencepost_judge._discovery import Directory
from fencepost_judge._discovery_etcd import EtcdAddress, EtcdDirectory
from fencepost_judge._discovery_kernel import KernelDirectory
from fencepost_judge._host_cache import NAME, HostCache
from fencepost_judge._judging import Judge
from fencepost_judge._language import Language, find_languages, read_specs, site_roots
from fencepost_judge._metrics import JudgeMetrics
from fencepost_judge._settings import JudgeSettings
from fencepost_judge._store import Keys, Store
from fencepost_judge._workspace import Workspace
from fencepost_judge.sandbox import _box_binary as box_binary
from fencepost_judge.sandbox._bubblewrap import reaches
from fencepost_judge.sandbox._command import Bounds
from fencepost_judge.sandbox._cores import chosen_cores
from fencepost_judge.sandbox._run_spec import Limits, Site
from fencepost_judge.sandbox._sandbox_pool import SandboxPool

_log = get_logger(__name__)
CUSTOM_RUN_OUTPUT_KB = 1024


@asynccontextmanager
async def open_judge(
    settings: JudgeSettings,
    metrics: JudgeMetrics,
    store: Store,
    *,
    languages: Mapping[str, Language] | None = None,
    bubblewrap: Path | None = None,
) -> AsyncGenerator[Judge]:
    """Open a judge, with the languages of this machine unless they are given. Leaves nothing behind.

    `bubblewrap` is the sandbox that the report found, for machines where fencepost-box could not be compiled.
    """
    if languages is None:
        offered = settings.offered
        specs = [spec for spec in read_specs() if offered is None or spec.name in offered]
        languages = await asyncio.to_thread(find_languages, specs)
    if bubblewrap is not None:
        languages = _reached(languages)
    box = await asyncio.to_thread(box_binary.find) if bubblewrap is None else None
    with Workspace(settings.workspace_root, box=box, passable=bubblewrap is not None) as workspace:
        site = Site(
            workspace.folder,
            site_roots(languages.values()),
            cgroup=settings.cgroup == "auto",
            outer_uid=settings.outer_uid,
        )
        boxes = SandboxPool(
            site,
            metrics,
            slots=settings.slots,
            agents=settings.agent,
            bounds=Bounds(settings.stdout_limit_bytes, settings.stderr_limit_bytes),
            bubblewrap=bubblewrap,
            cores=chosen_cores(settings.cores, ThisMachine()),
        )
        async with boxes:
            # A folder as the store is on this host already, or is what the hosts share.
            bytes_max = settings.cache_max_bytes
            host = (
                HostCache(store, settings.workspace_root / NAME, bytes_max=bytes_max)
                if store.is_bucket
                else None
            )
            cache = Cache(store, workspace.folder, bytes_max=bytes_max, host=host)
            yield Judge(
                boxes,
                workspace,
                cache,
                languages,
                parallel=settings.parallel_tests,
                custom_run_limits=_custom_run_limits(settings),
            )


def _reached(languages: Mapping[str, Language]) -> Mapping[str, Language]:
    """Without languages whose compiler the programs' user cannot reach."""
    lost = [name for name, one in languages.items() if not all(map(reaches, one.toolchain))]
    if lost:
        _log.warning("judge_languages_out_of_reach", languages=lost)
    return {name: language for name, language in languages.items() if name not in lost}


def open_store(settings: JudgeSettings) -> Store:
    """Open the store of test data."""
    keys = Keys(
        endpoint=settings.s3_endpoint,
        region=settings.s3_region,
        access_key=settings.s3_access_key,
        secret_key=settings.s3_secret_key,
    )
    return Store(settings.store, keys)


@asynccontextmanager
async def open_directory(settings: JudgeSettings, fp: Fencepost) -> AsyncGenerator[Directory]:
    """Open the directory in which workers are listed."""
    lease_seconds = settings.discovery_lease_seconds
    if settings.discovery == "kernel":
        yield KernelDirectory(fp, lease_seconds=lease_seconds)
        return
    address = EtcdAddress.read(settings.discovery)
    async with EtcdDirectory(address, lease_seconds=lease_seconds) as directory:
        yield directory


def _custom_run_limits(settings: JudgeSettings) -> Limits:
    return Limits(
        cpu_ms=settings.custom_run_time_ms,
        wall_ms=settings.custom_run_time_ms * 2 + 2000,
        memory_kb=settings.custom_run_memory_kb,
        output_kb=CUSTOM_RUN_OUTPUT_KB,
    )
