"""Handlers that compute, at the top of a module, where a process finds them."""

import os
import signal
import sys
from pathlib import Path

import psycopg
import structlog

from fencepost import Cancel, Fencepost, Job, PermanentError, Rate, Retry, ServerUnavailable, Snooze
from fencepost.jobs.retry_policy import Verdict
from tests.takeover import TAKEN_OVER

fp = Fencepost("postgresql://localhost/never-opened")


@fp.job("compute", run_in="process")
def square(job: Job, n: int) -> int:
    return n * n


@fp.job("compute", run_in="process")
def who(job: Job) -> int:
    return os.getpid()


@fp.job("compute", run_in="process", timeout=0.5, tries=1)
def for_ever(job: Job, note: str) -> None:
    Path(note).write_text(str(os.getpid()))
    while True:
        pass


@fp.job("compute", run_in="process", tries=1)
def for_ever_without_timeout(job: Job, note: str) -> None:
    Path(note).write_text(str(os.getpid()))
    while True:
        pass


def soon(tries: int, error: Exception) -> Verdict:
    """Looks at the exception itself, which only the process has."""
    return Retry(0 if isinstance(error, ZeroDivisionError) else 3600)


@fp.job("compute", run_in="process", retry=soon, tries=3)
def divide(job: Job, by: int) -> float:
    return 1 / by if job.tries < 3 else 0.0


@fp.job("compute", run_in="process")
def give_up(job: Job) -> None:
    raise PermanentError("of no use")


@fp.job("compute", run_in="process", tries=2, retry=lambda tries, error: Retry(0))
def crash(job: Job) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


@fp.job("compute", run_in="process", tries=1)
def leave(job: Job) -> None:
    sys.exit(3)


@fp.job("compute", run_in="process")
def write(job: Job, text: str) -> None:
    job.progress_sync({"half": True})
    with job.finish_sync({"text": text}) as tx:
        tx.execute("insert into note (text) values (%s)", (text,))


@fp.job("compute", run_in="process")
def zombie(job: Job, admin_url: str) -> None:
    """Its lease is taken away while it computes; its finish comes too late."""
    with psycopg.connect(admin_url, autocommit=True) as admin:
        admin.execute(TAKEN_OVER)
    with job.finish_sync() as tx:
        tx.execute("insert into note (text) values ('zombie')")


@fp.job("compute", run_in="process", rate=Rate(1000))
def traced(job: Job) -> object:
    return structlog.contextvars.get_contextvars()


@fp.job("compute", run_in="process", tries=1)
def snooze_once(job: Job) -> int:
    if job.attempt == 1:
        raise Snooze(3600)
    return job.tries


@fp.job("compute", run_in="process", tries=1)
def reach_once_away(job: Job) -> int:
    if job.attempt == 1:
        raise ServerUnavailable("PostgreSQL is away")
    return job.tries


@fp.job("compute", run_in="process")
def cancel(job: Job) -> None:
    raise Cancel("the order is gone")


def _renamed(job: Job) -> str:
    return "found"


another_name = fp.job("compute", run_in="process", kind="renamed")(_renamed)
