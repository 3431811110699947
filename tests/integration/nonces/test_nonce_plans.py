"""A reservation and the maintenance read no more pages when the history grows."""

from typing import Any, LiteralString

from tests.integration.kernel.caller import Caller
from tests.integration.nonces.operator import CHAIN, LONG, RESERVE, SIGNER, NonceOperator

OLD = """
    insert into fencepost.nonce_allocation (signer_id, nonce, status, caller_signs, hold, request_id,
                                            fencing_token, tx_hash, created_at, updated_at)
    select s.signer_id, i, 'CONSUMED', true, 1, 'old-' || i, 1, '0x', now(), now()
    from fencepost.nonce_signer s, generate_series(1000, 150000) i
"""
# A tree of 150,000 rows is one level higher than one of ten; each of four indexes may show it.
MORE_PAGES = 30


MAINTENANCE: tuple[LiteralString, ...] = (
    "select * from fencepost.nonce_measures()",
    "select * from fencepost.nonce_unanswered('{1}', 20)",
    "select fencepost.nonce_prune('1 second', 1000)",
)


def pages_of(admin: Caller, request_id: str) -> int:
    """Pages of tables and indexes that one reservation reads or writes, after its plans are made."""
    return pages(admin, RESERVE, CHAIN, SIGNER, "a/boot-1", 1, [request_id])


def pages(admin: Caller, query: LiteralString, *values: Any) -> int:
    explained = admin.row("explain (analyze, buffers, format json) " + query, *values)
    plan = explained["QUERY PLAN"][0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


def test_a_long_history_costs_a_reservation_and_maintenance_nothing(app: Caller, admin: Caller) -> None:
    NonceOperator(app, "a/boot-1", ttl=LONG).acquire()
    for number in range(10):
        pages_of(admin, f"warm-{number}")
    before = min(pages_of(admin, f"before-{number}") for number in range(5))
    maintenance = [min(pages(admin, query) for _ in range(3)) for query in MAINTENANCE]
    admin.execute(OLD)
    admin.execute("update fencepost.nonce_signer set next_nonce = 200000")

    after = min(pages_of(admin, f"after-{number}") for number in range(5))

    assert after <= before + MORE_PAGES, (before, after)
    for query, few in zip(MAINTENANCE, maintenance, strict=True):
        assert pages(admin, query) <= few + MORE_PAGES, query


def test_a_scan_would_be_seen(app: Caller, admin: Caller) -> None:
    NonceOperator(app, "a/boot-1", ttl=LONG).acquire()
    pages_of(admin, "warm")
    before = pages_of(admin, "before")
    admin.execute(OLD)
    admin.execute("update fencepost.nonce_signer set next_nonce = 200000")
    admin.execute("drop index fencepost.nonce_allocation_gaps")

    assert pages_of(admin, "after") > before + MORE_PAGES
