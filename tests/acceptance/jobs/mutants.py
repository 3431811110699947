"""Planted bugs: what the tests of this folder must notice, each by its name."""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import Any
from unittest import mock

from fencepost.jobs._completer import Completer
from fencepost.jobs._executor import HeldJob, Outcome
from fencepost.jobs._fetcher import Fetcher
from fencepost.jobs._reclaimer import START, Reclaimer
from fencepost.jobs._stream_reconciler import StreamReconciler
from fencepost.kernel import job as kernel_job


@contextmanager
def planted(name: str) -> Generator[None]:
    """The bug of that name is in this process inside the block; none for an empty name."""
    with ExitStack() as stack:
        for patch in MUTANTS[name]() if name else ():
            stack.enter_context(patch)
        yield


def _ack_before_commit() -> Iterator[Any]:
    right = Completer._settle  # pyright: ignore[reportPrivateUsage]

    async def wrong(self: Completer, batch: Sequence[tuple[HeldJob, Outcome]]) -> None:
        await self.acknowledge(active.entry for active, _ in batch if active.entry is not None)
        await right(self, batch)

    yield mock.patch.object(Completer, "_settle", wrong)


def _run_without_claim() -> Iterator[Any]:
    """Whatever an entry names is run, also when the claim was refused."""
    right = Fetcher._ask  # pyright: ignore[reportPrivateUsage]

    async def wrong(self: Fetcher, job_ids: Sequence[int]) -> Sequence[kernel_job.ClaimAnswer]:
        now = datetime.now(UTC)
        return [
            answer
            if answer.running is not None
            else kernel_job.ClaimAnswer(
                answer.job_id,
                "claimed",
                None,
                kernel_job.Running(
                    answer.job_id, 1, 1, "default", 1, "own", {"key": "again"}, {}, 60, now, now
                ),
            )
            for answer in await right(self, job_ids)
        ]

    yield mock.patch.object(Fetcher, "_ask", wrong)


def _cursor_from_the_beginning() -> Iterator[Any]:
    right = Reclaimer._take_idle  # pyright: ignore[reportPrivateUsage]

    async def wrong(self: Any, streams: Any) -> None:
        self._cursors = dict.fromkeys(self._cursors, START)
        await right(self, streams)

    yield mock.patch.object(Reclaimer, "_take_idle", wrong)


def _reconciler_that_never_recalls() -> Iterator[Any]:
    async def wrong(self: StreamReconciler, lost: Mapping[str, Sequence[kernel_job.Dispatched]]) -> None: ...

    yield mock.patch.object(StreamReconciler, "_recall", wrong)


MUTANTS: Mapping[str, Callable[[], Iterator[Any]]] = {
    "ack before commit": _ack_before_commit,
    "run without claim": _run_without_claim,
    "cursor always from 0-0": _cursor_from_the_beginning,
    "reconciler that never recalls": _reconciler_that_never_recalls,
}
