"""A fence lowers the idle timeout of its transaction, and of nothing else."""

from typing import Any

import pytest

from fencepost.testing import Clock
from tests.integration.kernel import job_calls
from tests.integration.kernel.caller import Caller
from tests.integration.kernel.job_calls import OWNER

IDLE = "show idle_in_transaction_session_timeout"
BOUND = (
    "select current_setting('idle_in_transaction_session_timeout') from fencepost.lease_fence('shard:9', 1)"
)
FENCES: Any = [
    "select fencepost.lease_fence('shard:1', 1)",
    f"select fencepost.job_fence(1, 1, '{OWNER}')",
    "select fencepost.outbox_hold('orders', 1, '1 minute')",
    "select fencepost.job_dispatch('mail', 1, 1, '1 minute')",
]
EVERY_FENCE = pytest.mark.parametrize("fence", FENCES, ids=["lease", "job", "hold", "dispatch"])


@pytest.fixture
def holder(app: Caller, clock: Clock) -> Caller:
    """The caller may pass every fence, each for a minute."""
    app.execute("select fencepost.lease_acquire('shard:1', 'a/boot-1', '1 minute')")
    job_calls.running(app)
    return app


@EVERY_FENCE
def test_a_fence_bounds_an_idle_transaction_to_half_its_lease(holder: Caller, fence: Any) -> None:
    with holder.transaction():
        holder.execute(fence)
        assert holder.value(IDLE) == "30s"

    assert holder.value(IDLE) == "0"


@EVERY_FENCE
def test_a_fence_undone_by_its_savepoint_gives_the_timeout_back(holder: Caller, fence: Any) -> None:
    holder.execute("begin")
    holder.execute("set local idle_in_transaction_session_timeout = '10min'")
    holder.execute("savepoint before")
    holder.execute(fence)
    assert holder.value(IDLE) == "30s"

    holder.execute("rollback to savepoint before")

    assert holder.value(IDLE) == "10min"
    holder.execute("commit")


@EVERY_FENCE
def test_a_fence_does_not_raise_a_lower_timeout(holder: Caller, fence: Any) -> None:
    with holder.transaction():
        holder.execute("set local idle_in_transaction_session_timeout = '1500ms'")
        holder.execute(fence)
        assert holder.value(IDLE) == "1500ms"


def test_two_fences_bound_it_by_the_shorter_lease(holder: Caller) -> None:
    holder.execute("select fencepost.lease_acquire('shard:2', 'a/boot-1', '10 seconds')")

    with holder.transaction():
        holder.execute("select fencepost.lease_fence('shard:1', 1)")
        holder.execute("select fencepost.lease_fence('shard:2', 1)")
        holder.execute("select fencepost.lease_fence('shard:1', 1)")
        assert holder.value(IDLE) == "5s"


@pytest.mark.parametrize(
    ("lease", "idle"), [("1 millisecond", "1ms"), ("1 second", "500ms"), ("1 day", "12h")]
)
def test_the_shortest_and_the_longest_lease_have_a_bound(
    app: Caller, clock: Clock, lease: str, idle: str
) -> None:
    app.execute("select fencepost.lease_acquire('shard:9', 'a/boot-1', %s::interval)", lease)

    # In one statement: a transaction bounded to a millisecond does not live to see the next.
    assert app.value(BOUND) == idle
