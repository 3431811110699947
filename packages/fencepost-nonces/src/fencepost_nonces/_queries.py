"""Queries about signers and nonces, read from the views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, LiteralString

from fencepost.kernel.call import Call, Row, each
from fencepost.kernel.call import one as one_row
from fencepost_nonces.signer import Signer

Fact = dict[str, Any]
_SIGNER: tuple[str, ...] = (
    "chain_id", "signer", "next_nonce", "chain_count", "fencing_token", "owner_node", "expires_at", "held",
    "gaps", "held_count", "signing", "signed", "broadcast", "lowest_open", "oldest_open_at",
    "recovering_since",
)  # fmt: skip
_NONCE: tuple[str, ...] = (
    "nonce", "status", "request_id", "hold", "caller_signs", "locked_until", "fencing_token", "tx_hash",
    "updated_at",
)  # fmt: skip
_SIGNERS: LiteralString = (
    "select chain_id, signer, next_nonce, chain_count, fencing_token, owner_node, expires_at, held, gaps,"
    " held_count, signing, signed, broadcast, lowest_open, oldest_open_at, recovering_since"
    " from fencepost.nonce_signers"
)


def signers(limit: int = 1000) -> Call[list[Fact]]:
    return Call(_SIGNERS + " order by chain_id, signer limit %s", (limit,), _facts(_SIGNER))


def signer(one: Signer) -> Call[list[Fact]]:
    """One signer, or nothing when it was never used."""
    return Call(_SIGNERS + " where chain_id = %s and signer = %s", (one.chain_id, one.name), _facts(_SIGNER))


def recovering() -> Call[list[Fact]]:
    """The signers of a restored backup whose next nonce is not set yet."""
    return Call(
        _SIGNERS + " where recovering_since is not null order by chain_id, signer", (), _facts(_SIGNER)
    )


@dataclass(frozen=True, slots=True)
class Measures:
    """The measurements over all signers; `functions/nonce_watch.sql` defines each."""

    gaps: int
    jamming: int
    overdue: int
    recovering: int
    in_doubt: int
    stuck_seconds: float
    waiting_seconds: float
    unproved: int


def measures() -> Call[Measures]:
    return Call(
        "select gaps, jamming, overdue, recovering, in_doubt, stuck_seconds, waiting_seconds, unproved"
        " from fencepost.nonce_measures()",
        (),
        one_row(Measures),
    )


def unanswered(chain_ids: Sequence[int], limit: int) -> Call[list[tuple[Signer, int]]]:
    """Signers of these chains with a nonce whose caller has not reported in time, at most `limit`; each with
    its lowest such nonce."""
    return Call(
        "select chain_id, signer, nonce from fencepost.nonce_unanswered(%s::bigint[], %s::integer)",
        (list(chain_ids), limit),
        each(_with_nonce),
    )


def accounts(chain_ids: Sequence[int], limit: int) -> Call[list[Signer]]:
    """Signers of these chains that are accounts and were served once."""
    return Call(
        "select chain_id, signer from fencepost.signer_lease where chain_id = any (%s)"
        " and starts_with(signer, '0x') order by chain_id, signer limit %s",
        (list(chain_ids), limit),
        each(Signer),
    )


def strip(one: Signer, below: int | None, limit: int) -> Call[list[Fact]]:
    """The newest nonces of a signer, highest first; `below` selects the next page."""
    return Call(
        "select nonce, status, request_id, hold, caller_signs, locked_until, fencing_token, tx_hash,"
        " updated_at"
        " from fencepost.signer_nonce_allocation where chain_id = %s and signer = %s"
        " and nonce < coalesce(%s::bigint, 9223372036854775807) order by nonce desc limit %s",
        (one.chain_id, one.name, below, limit),
        _facts(_NONCE),
    )


def jamming_gaps(one: Signer) -> Call[list[tuple[int, int]]]:
    """The gaps below something that is under way, each with its hold: nothing above them can be mined."""
    return Call(
        "select nonce, hold from fencepost.signer_nonce_allocation g where chain_id = %s and signer = %s"
        " and status = 'RELEASED' and exists (select from fencepost.signer_nonce_allocation a"
        " where a.chain_id = g.chain_id and a.signer = g.signer and a.nonce > g.nonce"
        " and a.status in ('HELD', 'SIGNING', 'SIGNED', 'BROADCAST')) order by nonce limit 100",
        (one.chain_id, one.name),
        lambda rows: [(row[0], row[1]) for row in rows],
    )


def _with_nonce(chain_id: int, name: str, nonce: int) -> tuple[Signer, int]:
    return Signer(chain_id, name), nonce


def _facts(names: tuple[str, ...]) -> Any:
    def read(rows: Sequence[Row]) -> list[Fact]:
        return [dict(zip(names, row, strict=True)) for row in rows]

    return read
