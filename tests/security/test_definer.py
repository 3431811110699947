"""A caller who prepares the ground changes nothing of what runs as the owner."""

from typing import Any

import pytest

from tests.integration.kernel.caller import Caller
from tests.takeover import TAKEN_OVER

OWNER = "worker-1/boot-1"


@pytest.fixture
def attacker(service: Caller, admin: Caller) -> Caller:
    """A service with a schema of its own, in front of every other, full of false friends."""
    admin.execute("create schema evil authorization fencepost_service")
    false_friends: list[Any] = [
        # Without it the owner would not even see them.
        "grant usage on schema evil to public",
        """create function evil.clock_timestamp() returns timestamptz language sql
           as $$ select '2000-01-01'::timestamptz $$""",
        "create function evil.octet_length(text) returns int language sql immutable as $$ select 0 $$",
        "create function evil.cardinality(anyarray) returns int language sql immutable as $$ select 1 $$",
        """create function evil.never(timestamptz, timestamptz) returns bool language sql immutable
           as $$ select false $$""",
        "create operator evil.> (leftarg = timestamptz, rightarg = timestamptz, function = evil.never)",
        "create function evil.always(text, text) returns bool language sql immutable as $$ select true $$",
        "create operator evil.= (leftarg = text, rightarg = text, function = evil.always)",
        "create table evil.lease (like fencepost.lease_status)",
        "create temp table lease (resource text, token bigint, owner text, expires_at timestamptz)",
        "create temp table job_running (job_id bigint, attempt bigint, owner text)",
        "create temp table token_floor (only_row bool, floor bigint)",
        "set search_path = pg_temp, evil, fencepost, pg_catalog",
    ]
    for statement in false_friends:
        service.execute(statement)
    return service


def test_a_lease_is_judged_by_the_real_clock_and_the_real_table(attacker: Caller) -> None:
    attacker.execute("select fencepost.lease_acquire('shard:1', 'a/boot-1', '1 hour')")

    attacker.refused("not_owner", "select fencepost.lease_acquire('shard:1', 'b/boot-1', '1 hour')")
    attacker.refused("not_owner", "select fencepost.lease_fence('shard:1', 2)")
    assert attacker.rows("select from pg_temp.lease") == []


def test_a_job_is_judged_by_the_real_owner_and_attempt(attacker: Caller) -> None:
    job_id = attacker.value("select job_id from fencepost.job_submit('mail', 'send', '{}')")
    attacker.execute("select fencepost.job_claim(%s, %s)", job_id, OWNER)

    attacker.refused("not_owner", "select fencepost.job_finish(%s, 1, 'thief')", job_id)
    attacker.refused("not_owner", "select fencepost.job_finish(%s, 2, %s)", job_id, OWNER)


def test_sizes_are_measured_by_the_real_functions(attacker: Caller) -> None:
    attacker.invalid("scope", "select fencepost.claim(pg_catalog.repeat('x', 257), 'k')")
    attacker.invalid("attempts", "select fencepost.job_finish_many('{1}', '{1, 2}', 'w')")


def test_a_forged_fence_spares_the_clock_and_nothing_else(service: Caller, admin: Caller) -> None:
    job_id = service.value("select job_id from fencepost.job_submit('mail', 'send', '{}')")
    service.execute("select fencepost.job_claim(%s, %s)", job_id, OWNER)
    service.execute("set fencepost.fenced = ',1:1,1:2,'")

    service.refused("not_owner", "select fencepost.job_finish(%s, 1, 'thief')", job_id)
    service.refused("not_owner", "select fencepost.job_finish(%s, 2, %s)", job_id, OWNER)
    admin.execute(TAKEN_OVER)
    service.refused("stale_attempt", "select fencepost.job_finish(%s, 1, %s)", job_id, OWNER)


def test_the_owners_rights_end_with_the_function(service: Caller) -> None:
    with service.transaction():
        service.execute("select fencepost.lease_acquire('shard:1', 'a/boot-1', '1 hour')")
        assert service.value("select current_user") == "fencepost_service"
        assert service.value("show search_path") == '"$user", public'


@pytest.mark.parametrize(
    "text", ["'); drop table fencepost.job; --", "\\", "%s", "{}", "$$", "fencepost.job"]
)
def test_a_hostile_text_is_a_text(service: Caller, text: str) -> None:
    service.execute("select fencepost.claim(%s, %s)", text, text)
    service.execute("select fencepost.lease_acquire(%s, %s, '1 hour')", text, text)
    service.execute("select fencepost.queue_pause(%s, %s)", text, text)

    assert service.value("select key from fencepost.idempotency_keys") == text
    assert len(service.rows("select * from fencepost.explain(%s)", f"lease:{text}")) == 2
