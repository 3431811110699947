"""Packages verified by a judge as jobs: asked for by a setter, watched, and read as a report."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from fencepost.client import Fencepost
from fencepost.errors import Backpressure, InvalidInput, NotFound
from fencepost.jobs.job import Job
from fencepost.kernel.call import Call, Json, document, each, nothing, parsed, text
from fencepost_judge._judging import Judge, JudgeFault
from fencepost_judge._metrics import JudgeMetrics
from fencepost_judge._requeue import needs_of, repeat_elsewhere, wait_for_store
from fencepost_judge._settings import JudgeSettings
from fencepost_judge._store import CorruptData, Store, StoreUnavailable
from fencepost_judge._verification import Verification, verify_package
from fencepost_judge._verify_report import progress_lines, report
from fencepost_judge.packages._reading import ReadProblem

TRIES = 2
PROGRESS_LINES = 20
PROGRESS_LINE_CHARACTERS = 200
PROGRESS_SECONDS = 0.5
REPORT_CHARACTERS = 1_000_000
Read = Callable[[Path, str], Awaitable[ReadProblem]]


@dataclass(frozen=True, slots=True)
class StoredVerification:
    """One verification; it has no report while it waits or runs. A package that is refused has `refused` in
    its report, and nothing else."""

    job_id: int
    name: str
    digest: str
    bytes: int
    time_limit_seconds: float | None
    asked_by: str
    asked_at: datetime
    ended_at: datetime | None
    report: Json
    state: str
    """Of its job."""
    progress: Json

    @property
    def text(self) -> str:
        """The report in Markdown; empty while there is none, and of a package that was refused."""
        return str(self.report["text"]) if self.report and "text" in self.report else ""


class Verifications:
    """`judge` returns the judge that is open on this machine, and `read` reads a package; both are called in
    workers only."""

    def __init__(
        self,
        fp: Fencepost,
        settings: JudgeSettings,
        metrics: JudgeMetrics,
        store: Store,
        queue: str,
        judge: Callable[[], Judge],
        read: Read,
    ) -> None:
        self._fp = fp
        self._settings = settings
        self._metrics = metrics
        self._store = store
        self._judge = judge
        self._read = read
        declare = fp.job(queue, kind="judge_verification", tries=TRIES, lease=settings.lease_seconds)
        self._job = declare(self._run)

    async def submit(self, place: Path, name: str, seconds: float | None, *, actor: str) -> int:
        """Verify the package in a zip, behind everything that waits. Returns the job."""
        content = await asyncio.to_thread(place.read_bytes)
        digest = await asyncio.to_thread(self._store.put, content)
        return await self._submit(name, digest, len(content), seconds, actor)

    async def repeat(self, job_id: int, seconds: float | None, *, actor: str) -> int:
        """Verify the package of an earlier verification again."""
        one = await self.get(job_id)
        return await self._submit(one.name, one.digest, one.bytes, seconds, actor)

    async def _submit(self, name: str, digest: str, size: int, seconds: float | None, actor: str) -> int:
        async with self._fp.transaction() as tx:
            submitted = await self._job.options(priority="low", headers=needs_of([])).submit(tx)
            await tx.run(_put(submitted.job_id, name, digest, size, seconds, actor))
        return submitted.job_id

    async def get(self, job_id: int) -> StoredVerification:
        found = await self._fp.run(_list(job_id, None, 1))
        if not found:
            raise NotFound(f"There is no verification {job_id}.", noun="verification", subject=str(job_id))
        return found[0]

    async def newest(self, before: int | None, limit: int) -> list[StoredVerification]:
        return await self._fp.run(_list(None, before, limit))

    async def package(self, one: StoredVerification, file: Path) -> None:
        """Write the zip that was verified."""
        content = await asyncio.to_thread(self._store.get, one.digest)
        await asyncio.to_thread(file.write_bytes, content)

    async def _run(self, job: Job) -> None:
        one = await self.get(job.id)
        try:
            written = await self._verified(job, one)
        except InvalidInput as refused:
            written = {"refused": str(refused)}
        except StoreUnavailable as error:
            await wait_for_store(self._fp, job, str(error), minutes_max=self._settings.store_wait_minutes)
            written = {"refused": "The package cannot be fetched from JUDGE_STORE."}
        except (FileNotFoundError, CorruptData):
            written = {"refused": "The package is not in JUDGE_STORE any more. Upload it again."}
        except (JudgeFault, OSError) as fault:
            await repeat_elsewhere(self._fp, job, fault, self._settings, self._metrics)
            written = {"refused": f"The judge failed: {str(fault)[:500]}"}
        async with job.finish(None, final_status="REFUSED" if "refused" in written else "VERIFIED") as tx:
            await tx.run(_done(job.id, job.attempt, job.owner, written))

    async def _verified(self, job: Job, one: StoredVerification) -> Json:
        told_at = 0.0

        async def tell(made: Verification) -> None:
            nonlocal told_at
            now = time.monotonic()
            if now - told_at < PROGRESS_SECONDS:
                return
            told_at = now
            lines = [line[:PROGRESS_LINE_CHARACTERS] for line in progress_lines(made)]
            done, total = len(made.submissions), len(made.read.submissions)
            await job.progress({"done": done, "total": total, "lines": lines[-PROGRESS_LINES:]})

        with tempfile.TemporaryDirectory(prefix="fencepost-verify-") as scratch:
            zipped = Path(scratch) / f"{one.name}.zip"
            await self.package(one, zipped)
            try:
                read = await self._read(zipped, one.name)
            except Backpressure as busy:
                raise JudgeFault(str(busy)) from busy
            made = await verify_package(
                self._judge(),
                read,
                self._store,
                seconds=one.time_limit_seconds,
                python=self._settings.python,
                tell=tell,
            )
        return {
            "right": made.kept.count(True),
            "wrong": made.kept.count(False),
            "skipped": made.kept.count(None) + len(made.read.disabled),
            "text": report(made)[:REPORT_CHARACTERS],
        }


def _put(job_id: int, name: str, digest: str, size: int, seconds: float | None, asked_by: str) -> Call[None]:
    return Call(
        "select fencepost.judge_verification_put"
        "(%s::bigint, %s::text, %s::text, %s::bigint, %s::double precision, %s::text)",
        (job_id, name, digest, size, seconds, text("asked_by", asked_by)),
        nothing,
    )


def _list(one: int | None, before: int | None, limit: int) -> Call[list[StoredVerification]]:
    return Call(
        "select job_id, name, digest, bytes, time_limit_seconds, asked_by, asked_at, ended_at, report::text,"
        " state, progress::text from fencepost.judge_verifications(%s::bigint, %s::bigint, %s::integer)",
        (one, before, limit),
        each(_stored),
    )


def _done(job_id: int, attempt: int, owner: str, written: Json) -> Call[None]:
    return Call(
        "select fencepost.judge_verification_done(%s::bigint, %s::bigint, %s::text, %s::jsonb)",
        (job_id, attempt, owner, document("report", written)),
        nothing,
    )


def _stored(
    job_id: int,
    name: str,
    digest: str,
    size: int,
    seconds: float | None,
    asked_by: str,
    asked_at: datetime,
    ended_at: datetime | None,
    written: str | None,
    state: str,
    progress: str | None,
) -> StoredVerification:
    return StoredVerification(
        job_id,
        name,
        digest,
        size,
        seconds,
        asked_by,
        asked_at,
        ended_at,
        parsed(written),
        state,
        parsed(progress),
    )
