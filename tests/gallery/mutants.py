"""Bugs in the processes of a torture, each by its name. Only `planted_nursery` switches them on."""

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any
from unittest import mock

from fencepost import Fencepost, IndeterminateCommit, Job, Lease
from fencepost_torture.systems import _jobs as jobs
from fencepost_torture.systems import _leases as leases
from tests.acceptance.jobs import mutants as job_mutants
from tests.integration.orders import test_teeth as order_teeth


@contextmanager
def planted(name: str) -> Generator[None]:
    with ExitStack() as stack:
        for patch in MUTANTS[name]():
            stack.enter_context(patch)
        yield


def _write_without_a_fence() -> Iterator[AbstractContextManager[Any]]:
    def wrong(self: Any, lease: Lease, wish: int) -> int:
        with self._fp.transaction() as tx:
            row = tx.execute(leases.WRITE, (lease.resource, wish, lease.token, lease.resource)).fetchone()
            return int(row[0])

    yield mock.patch.object(leases.LeaseHolder, "_write_fenced", wrong)


def _take_unknown_for_failed() -> Iterator[AbstractContextManager[Any]]:
    right = leases.LeaseHolder._write_fenced  # pyright: ignore[reportPrivateUsage]

    def wrong(self: Any, lease: Lease, wish: int) -> int:
        try:
            return right(self, lease, wish)
        except IndeterminateCommit:
            return right(self, lease, wish)

    yield mock.patch.object(leases.LeaseHolder, "_write_fenced", wrong)


def _effect_beside_the_finish() -> Iterator[AbstractContextManager[Any]]:
    def declare(fp: Fencepost, lease_seconds: float) -> None:
        async def beside(job: Job, key: str, fail: int, linger: float) -> None:
            async with fp.transaction() as tx:
                await tx.execute(jobs.EFFECT, (key, job.id, job.attempt))
            async with job.finish({"key": key}):
                pass

        for kind in jobs.KINDS:
            fp.job("default", kind=kind, tries=1000, lease=lease_seconds)(beside)

    yield mock.patch.object(jobs, "declare", declare)


def _of_jobs(name: str) -> Callable[[], Iterator[AbstractContextManager[Any]]]:
    return job_mutants.MUTANTS[name]


def _of_orders(bug: Callable[[], AbstractContextManager[Any]]) -> Callable[[], Iterator[Any]]:
    def patches() -> Iterator[Any]:
        yield bug()

    return patches


MUTANTS: Mapping[str, Callable[[], Iterator[AbstractContextManager[Any]]]] = {
    "writes without a fence": _write_without_a_fence,
    "takes unknown for failed": _take_unknown_for_failed,
    "effect beside the finish": _effect_beside_the_finish,
    "reconciler that never recalls": _of_jobs("reconciler that never recalls"),
    "rewinds what is stuck": _of_orders(order_teeth.rewinding),
    "retries after a 5xx": _of_orders(order_teeth.retrying_after_5xx),
    "believes in absence": _of_orders(order_teeth.believing_absence),
}
