"""Planted bugs: what the tests of this folder must notice, each by its name."""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from fencepost.drive.stream import Entry
from fencepost.jobs.execution import Active, Outcome
from fencepost.jobs.intake import Intake, Taken
from fencepost.jobs.reclaimer import START, Reclaimer
from fencepost.jobs.settlement import Settler
from fencepost.jobs.sweeper import Sweeper
from fencepost.kernel import job as kernel_job


@contextmanager
def planted(name: str) -> Generator[None]:
    """The bug of that name is in this process inside the block; none for an empty name."""
    with ExitStack() as stack:
        for patch in MUTANTS[name]() if name else ():
            stack.enter_context(patch)
        yield


def _ack_before_commit() -> Iterator[Any]:
    right = Settler._settle  # pyright: ignore[reportPrivateUsage]

    async def wrong(self: Settler, batch: Sequence[tuple[Active, Outcome]]) -> None:
        await self.acknowledge(active.entry for active, _ in batch if active.entry is not None)
        await right(self, batch)

    yield mock.patch.object(Settler, "_settle", wrong)


def _claim_without_gate() -> Iterator[Any]:
    """Whatever an entry names is run, whoever holds it."""
    right = Intake._claim  # pyright: ignore[reportPrivateUsage]

    async def wrong(self: Intake, entries: Sequence[Entry]) -> Taken:
        taken = await right(self, entries)
        claimed = [running for running, _ in taken.claimed]
        again = [(running, entry) for running in claimed for entry in taken.done]
        return Taken([*taken.claimed, *again], taken.done, taken.refusals, taken.asked_at)

    yield mock.patch.object(Intake, "_claim", wrong)


def _cursor_from_the_beginning() -> Iterator[Any]:
    right = Reclaimer._take_idle  # pyright: ignore[reportPrivateUsage]

    async def wrong(self: Any, streams: Any) -> None:
        self._cursors = dict.fromkeys(self._cursors, START)
        await right(self, streams)

    yield mock.patch.object(Reclaimer, "_take_idle", wrong)


def _sweeper_that_never_recalls() -> Iterator[Any]:
    async def wrong(self: Sweeper, lost: Mapping[str, Sequence[kernel_job.Driven]]) -> None: ...

    yield mock.patch.object(Sweeper, "_recall", wrong)


MUTANTS: Mapping[str, Callable[[], Iterator[Any]]] = {
    "ack before commit": _ack_before_commit,
    "claim without gate": _claim_without_gate,
    "cursor always from 0-0": _cursor_from_the_beginning,
    "sweeper that never recalls": _sweeper_that_never_recalls,
}
