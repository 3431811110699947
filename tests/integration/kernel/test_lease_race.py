"""Many owners acquire one resource for the first time, at the same moment: one gets it, none fails."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from tests.integration.kernel.caller import Caller

CALLERS = 4
RESOURCES = 80
ACQUIRE = "select owner from fencepost.lease_acquire_many(array[%s]::text[], %s, '1 hour')"


def test_the_first_acquisitions_at_once_have_one_winner(connect: Callable[[], Caller]) -> None:
    """The row has two unique keys, and the loser must not fail on the one that it did not name."""
    callers = [connect() for _ in range(CALLERS)]
    barrier = Barrier(CALLERS)

    def acquire(number: int) -> list[str]:
        owners: list[str] = []
        for resource in range(RESOURCES):
            barrier.wait(30)
            owners.append(callers[number].value(ACQUIRE, f"shard:{resource}", f"owner-{number}"))
        return owners

    with ThreadPoolExecutor(CALLERS) as pool:
        seen = list(pool.map(acquire, range(CALLERS)))

    assert all(len(set(owners)) == 1 for owners in zip(*seen, strict=True))
