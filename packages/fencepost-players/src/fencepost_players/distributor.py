"""Rewards inside somebody's own transaction: granted, versioned and recorded, or none of it.

Whatever gives rewards beside writes of its own (a quest, a mail, a lesson with a table of its own) opens a
transaction and calls this in it. It joins that transaction: its marker, its grants and the caller's writes
commit together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fencepost.kernel import idempotency
from fencepost.kernel.call import Call, document, nothing, optional_text, scalar, text
from fencepost.transaction import Transaction
from fencepost_players.catalog import Reward
from fencepost_players.mutations.blocker_eviction import BlockerEviction
from fencepost_players.mutations.planning import make_plan
from fencepost_players.plan import Change
from fencepost_players.player_store import evict, scope_of

# What a marker keeps.
SUMMARY_BYTES_MAX = 65_536


@dataclass(frozen=True, slots=True)
class Summary:
    """What a distribution did; for a repeat, what it did the first time."""

    player_id: str
    version: int
    granted: Sequence[Mapping[str, Any]]


class VersionBumper(Protocol):
    """Locks the player's row until the transaction ends, and raises its version once in it."""

    async def bump(self, tx: Transaction, player: str) -> int: ...


class PlayerVersionBumper:
    """The one for our own players; several distributions in one transaction raise the version once.

    `Players.version_bumper` is one with a vigil: whoever holds the row for too long is ended.
    """

    def __init__(self, blocker_eviction: BlockerEviction | None = None) -> None:
        self._blocker_eviction = blocker_eviction

    async def bump(self, tx: Transaction, player: str) -> int:
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
    """Grant the rewards once under this key, whoever calls it how often.

    The marker is the first statement; the database refuses to distribute without it, and without the bumped
    row. A repeat answers the first summary, and then this transaction will not commit: it would repeat its
    other writes. A summary that is too large to be kept makes the repeat a Duplicate.
    """
    digest = idempotency.digest(source, [reward.model_dump(mode="json") for reward in rewards])
    claim = await tx.claim(scope_of(player), key, digest=digest)
    if claim.replayed:
        return Summary(**claim.response)
    version = await version_bumper.bump(tx, player)

    change = Change()
    granted = make_plan(lambda dice: change.give(rewards, dice)).plan
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
