"""Rewards inside the caller's own transaction: granted, versioned and recorded, or none of it.

Code that gives rewards beside its own writes (a quest, a mail, a lesson with its own table) opens a
transaction and calls this in it. It joins that transaction: its idempotency key, its grants and the caller's
writes commit together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fencepost.kernel import idempotency
from fencepost.kernel.call import Call, document, nothing, optional_text, scalar, text
from fencepost.transaction import Transaction
from fencepost_players._plan import Change
from fencepost_players._player_store import evict, scope_of
from fencepost_players.catalog import Reward
from fencepost_players.mutations.blocker_eviction import BlockerEviction
from fencepost_players.mutations.planning import make_plan

# The largest summary that is stored with an idempotency key.
SUMMARY_BYTES_MAX = 65_536


@dataclass(frozen=True, slots=True)
class Summary:
    """The result of a distribution; for a repeat, the result of the first time."""

    player_id: str
    version: int
    granted: Sequence[Mapping[str, Any]]


class VersionBumper(Protocol):
    """Locks the player's row until the transaction ends, and raises its version once in it."""

    async def bump(self, tx: Transaction, player: str) -> int:
        """Raise the version in this transaction and return it. The row stays locked until the commit."""
        ...


class PlayerVersionBumper:
    """The bumper for the players of this package; several distributions in a transaction raise it once.

    `Players.version_bumper` is one with a BlockerEviction: it terminates backends that hold the row past the
    limit.
    """

    def __init__(self, blocker_eviction: BlockerEviction | None = None) -> None:
        self._blocker_eviction = blocker_eviction

    async def bump(self, tx: Transaction, player: str) -> int:
        """Raise the player's version and return it; a caller that blocks it past the limit is evicted."""
        attempt = tx.run(bump(player))
        return await (
            self._blocker_eviction.keep(attempt, lambda: evict([player]))
            if self._blocker_eviction
            else attempt
        )


async def distribute_and_sync(
    tx: Transaction,
    player: str,
    key: str,
    source: str,
    rewards: Sequence[Reward],
    version_bumper: VersionBumper,
) -> Summary:
    """Grant the rewards once under this key, however often it is called.

    Claiming the idempotency key is the first statement; the database refuses to distribute without it, and
    without the bumped row. A repeat returns the first summary, and then this transaction will not commit,
    because it would repeat its other writes. When the summary is too large to store, a repeat is a Duplicate.
    """
    digest = idempotency.digest(source, [reward.model_dump(mode="json") for reward in rewards])
    claim = await tx.claim(scope_of(player), key, digest=digest)
    if claim.replayed:
        return Summary(**claim.response)
    version = await version_bumper.bump(tx, player)

    change = Change()
    granted = make_plan(lambda rng: change.give(rewards, rng)).plan
    await tx.run(distribute(player, version, key, source, change))
    summary: dict[str, Any] = {"player_id": player, "version": version, "granted": granted}
    if len(document("summary", summary).encode()) <= SUMMARY_BYTES_MAX:
        await tx.run(idempotency.remember(scope_of(player), key, summary))
    return Summary(**summary)


def bump(player: str) -> Call[int]:
    """Lock the row and raise the version, once in this transaction."""
    return Call("select fencepost.player_bump(%s::text)", (text("player", player),), scalar)


def distribute(
    player: str, version: int, key: str, source: str, change: Change, *, actor: str | None = None
) -> Call[None]:
    """Apply a change to a player at this version, with an audit entry, once for each key."""
    return Call(
        "select fencepost.player_distribute(%s::text, %s::bigint, %s::text, %s::text, %s::jsonb, %s::text)",
        (
            text("player", player),
            version,
            text("key", key),
            text("source", source),
            document("change", change.as_json()),
            optional_text("actor", actor),
        ),
        nothing,
    )
