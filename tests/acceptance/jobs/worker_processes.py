"""What the worker processes of these tests run.

A key is asked for once, and takes effect once. Some handlers write the effect in the transaction that
finishes the job; the bare ones leave it to the worker to finish, and a trigger counts the finishing writes.
"""

import asyncio
import json
import sys
import threading
from collections.abc import Callable
from typing import Any

from fencepost.client import Fencepost
from fencepost.errors import FencepostError, Refusal
from fencepost.jobs.job import Job
from fencepost.jobs.retry_policy import Retry, Verdict
from fencepost.jobs.settings import JobSettings
from fencepost.kernel import job as kernel_job
from fencepost.kernel.call import Call
from fencepost.logs import configure_logging
from tests.acceptance.jobs import mutants

LEASE_SECONDS = 1.0
KINDS = ("own", "group", "bare", "thread")
EFFECT = "insert into effect (key, job_id, attempt, who) values (%s, %s, %s, %s)"

SETTINGS: dict[str, Any] = {
    "lease_seconds": LEASE_SECONDS,
    "heartbeat_seconds": 0.2,
    "poll_seconds": 0.1,
    "sweep_interval_seconds": 0.2,
    "reclaim_interval_seconds": 0.2,
    "reclaim_grace_seconds": 0.2,
    "drain_seconds": 10,
    "concurrency": 8,
    "batch": 50,
    "notice_claims": 0,
}


async def work(url: str, redis_url: str | None, changes: dict[str, Any], mutant: str = "") -> None:
    """A worker until it is told to stop."""
    configure_logging(level="warning", form="json")
    with mutants.planted(mutant):
        fp = Fencepost(url, redis_url=redis_url)
        declare(fp)
        async with fp:
            worker = fp.jobs.worker(JobSettings(**(SETTINGS | changes)))
            _on_line("stop", worker.stop)
            say("working")
            await worker.run()
    say("stopped")


def declare(fp: Fencepost) -> None:
    """The handlers. `fail` is how many tries fail, `linger` how long the work takes in seconds.

    The work takes real time: faults come from another process while it runs, and leases run out by the clock.
    """

    @fp.job("default", kind="own", tries=1000, lease=LEASE_SECONDS, retry=at_once)
    async def own(job: Job, key: str, fail: int = 0, linger: float = 0) -> None:
        await asyncio.sleep(linger)
        stumble(job, fail)
        async with job.finish({"key": key}) as tx:
            await tx.execute(EFFECT, (key, job.id, job.attempt, job.owner))

    @fp.job("default", kind="group", tries=1000, lease=LEASE_SECONDS, retry=at_once)
    async def group(job: Job, key: str, fail: int = 0, linger: float = 0) -> None:
        await asyncio.sleep(linger)
        stumble(job, fail)
        await job.finish_with((EFFECT, (key, job.id, job.attempt, job.owner)), result={"key": key})

    @fp.job("default", kind="bare", tries=1000, lease=LEASE_SECONDS, retry=at_once)
    async def bare(job: Job, key: str, fail: int = 0, linger: float = 0) -> dict[str, str]:
        await asyncio.sleep(linger)
        stumble(job, fail)
        return {"key": key}

    @fp.job("default", kind="thread", tries=1000, lease=LEASE_SECONDS, retry=at_once)
    def thread(job: Job, key: str, fail: int = 0, linger: float = 0) -> None:
        threading.Event().wait(linger)
        stumble(job, fail)
        with job.finish_sync({"key": key}) as tx:
            tx.execute(EFFECT, (key, job.id, job.attempt, job.owner))


def at_once(_tries: int, _error: Exception) -> Verdict:
    return Retry(0)


def stumble(job: Job, fail: int) -> None:
    if job.tries <= fail:
        raise RuntimeError(f"try {job.tries} fails, as planned")


async def zombie(url: str, redis_url: str, bare: bool) -> None:
    """A worker whose only job waits for a word, and then does everything that an owner may do."""
    configure_logging(level="warning", form="json")
    fp = Fencepost(url, redis_url=redis_url)
    told = threading.Event()

    @fp.job("default", kind="own", tries=1000, lease=LEASE_SECONDS)
    def own(job: Job, key: str, fail: int = 0, linger: float = 0) -> dict[str, str]:
        say(f"holding {job.attempt}")
        told.wait()
        facade = fp.sync()
        with facade:

            def attempt_to(what: str, call: Call[Any]) -> None:
                tell(what, lambda: facade.run(call))

            attempt_to("renew", kernel_job.renew(job.id, job.attempt, job.owner))
            tell("progress", lambda: job.progress_sync({"late": True}))
            if not bare:
                tell("finish", lambda: finish(job, key))
            attempt_to("release", kernel_job.release(job.id, job.attempt, job.owner))
            attempt_to("retry", kernel_job.retry(job.id, job.attempt, job.owner, "late", 0))
        return {"key": key}

    async with fp:
        # It does not reclaim its own job when it wakes: that is for others to do, or not.
        changes: dict[str, Any] = {"concurrency": 1, "worker_id": "zombie", "reclaim_interval_seconds": 3600}
        worker = fp.jobs.worker(JobSettings(**(SETTINGS | changes)))
        _on_line("go on", told.set, "stop", worker.stop)
        await worker.run()
    say("stopped")


def finish(job: Job, key: str) -> None:
    with job.finish_sync({"key": key}) as tx:
        tx.execute(EFFECT, (key, job.id, job.attempt, job.owner))


def tell(what: str, act: Callable[[], object]) -> None:
    try:
        act()
    except Refusal as refusal:
        say(f"{what} refused: {refusal.reason}")
    except FencepostError as error:
        say(f"{what} failed: {type(error).__name__}")
    else:
        say(f"{what} done")


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _on_line(*orders: Any) -> None:
    """Act on lines of standard input: a line and what to do, and so on."""
    loop = asyncio.get_running_loop()
    actions: dict[str, Callable[[], object]] = dict(zip(orders[::2], orders[1::2], strict=True))

    def listen() -> None:
        for line in sys.stdin:
            action = actions.get(line.strip())
            if action is not None:
                loop.call_soon_threadsafe(action)

    threading.Thread(target=listen, daemon=True).start()


def payload(key: str, fail: int = 0, linger: float = 0) -> str:
    return json.dumps({"key": key, "fail": fail, "linger": linger})
