"""Ending a backend is the owner's right, lent for one purpose."""

from contextlib import closing

import pytest

from fencepost.embedded import Database
from fencepost.testing import Clock
from tests.integration.kernel.caller import Caller

EVICT = "select fencepost.lease_evict('shard:1', %s, '0')"


@pytest.fixture
def expired(service: Caller, clock: Clock) -> Caller:
    """A lease that ended long ago."""
    service.execute("select fencepost.lease_acquire('shard:1', 'a/boot-1', '1 minute')")
    clock.advance(3600)
    return service


def test_a_valid_lease_is_no_reason_to_terminate_a_backend(service: Caller, clock: Clock) -> None:
    service.execute("select fencepost.lease_acquire('shard:1', 'a/boot-1', '1 minute')")

    service.refused("not_owner", EVICT, service.pid)


def test_a_waiter_of_another_login_is_not_the_callers_to_free(
    expired: Caller, admin: Caller, viewer: Caller
) -> None:
    for waiter in (admin.pid, viewer.pid):
        expired.invalid("waiter", EVICT, waiter)
    expired.invalid("waiter", EVICT, None)
    expired.invalid("waiter", EVICT, 0)


def test_a_waiter_in_another_database_is_not_the_callers_to_free(expired: Caller, database: Database) -> None:
    elsewhere = database.server.url("postgres", "fencepost_service")
    with closing(Caller(elsewhere)) as other:
        expired.invalid("waiter", EVICT, other.pid)


def test_a_waiter_that_is_not_blocked_terminates_no_backend(expired: Caller) -> None:
    assert expired.rows(EVICT, expired.pid) == []


def test_a_viewer_terminates_no_backend(viewer: Caller) -> None:
    viewer.failed("42501", EVICT, viewer.pid)
    viewer.failed("42501", "select fencepost.job_evict(1, %s, '0')", viewer.pid)
