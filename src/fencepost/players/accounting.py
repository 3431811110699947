"""The database side of a player's mutations: one function that looks, one that executes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fencepost.kernel.call import (
    Call,
    Row,
    column,
    document,
    one,
    optional_document,
    optional_text,
    parsed,
    text,
)
from fencepost.mutations.ferry import Passenger
from fencepost.mutations.ledger import Executed, Look, Ticket
from fencepost.mutations.planning import Planned
from fencepost.players.plan import Needs, PlayerPlan
from fencepost.players.recollection import Recollection
from fencepost.players.snapshot import PlayerSnapshot

SERVICE = "players"


def scope_of(player_id: str) -> str:
    """Request ids are a player's own. `functions/player_execute.sql` and the view know this form too."""
    return f"player:{player_id}"


def evict(players: Sequence[str]) -> Call[list[int]]:
    """End whoever has kept one of these players' rows from others for too long."""
    return Call("select * from fencepost.player_evict(%s::text[])", (list(players),), column)


class PlayerLedger:
    """The calls that the pipeline makes for players."""

    service = SERVICE

    def __init__(self) -> None:
        self._recollection = Recollection()

    def scope(self, user: str) -> str:
        return scope_of(user)

    def recall(self, ticket: Ticket, needs: Needs) -> Look[PlayerSnapshot] | None:
        snapshot = self._recollection.snapshot(ticket.user, needs)
        return None if snapshot is None else Look("open", None, snapshot.version, snapshot)

    def look(self, ticket: Ticket, needs: Needs) -> Call[Look[PlayerSnapshot]]:
        def read(outcome: str, response: str | None, version: int | None, state: str | None) -> Look[Any]:
            snapshot = PlayerSnapshot.read(ticket.user, version, parsed(state) or {})
            self._recollection.saw(snapshot)
            return Look(outcome, parsed(response), version, snapshot)

        return Call(
            "select outcome, response::text, version, state::text"
            " from fencepost.player_look(%s::text, %s::text, %s::text, %s::text, %s::jsonb)",
            (
                ticket.scope,
                ticket.key,
                ticket.digest,
                text("player_id", ticket.user),
                document("needs", needs.as_json()),
            ),
            one(read),
        )

    def execute_many(self, passengers: Sequence[Passenger[PlayerPlan]]) -> Call[list[Executed | None]]:
        """One function and one commit for all of them; whoever would have to wait is None, and goes alone."""
        responses = [each.planned.plan.response(each.version) for each in passengers]

        def read(rows: Sequence[Row]) -> list[Executed | None]:
            found: list[Executed | None] = [None] * len(passengers)
            for number, outcome, stored in rows:
                place = int(number) - 1
                found[place] = self._executed(passengers[place].ticket, responses[place], outcome, stored)
            return found

        return Call(
            "select place, outcome, response::text from fencepost.player_execute_many(%s::text[], %s::text[],"
            " %s::text[], %s::jsonb[], %s::text[], %s::text[], %s::bigint[], %s::jsonb[])",
            (
                [each.ticket.scope for each in passengers],
                [each.ticket.key for each in passengers],
                [each.ticket.digest for each in passengers],
                [
                    optional_document("answer", response if each.keep else None)
                    for each, response in zip(passengers, responses, strict=True)
                ],
                [each.ticket.method for each in passengers],
                [optional_text("actor", each.ticket.actor) for each in passengers],
                [each.version for each in passengers],
                [document("plan", each.planned.plan.as_json(each.planned.seed)) for each in passengers],
            ),
            read,
        )

    def execute(
        self, ticket: Ticket, planned: Planned[PlayerPlan], version: int | None, *, keep: bool
    ) -> Call[Executed]:
        response = planned.plan.response(version)

        def read(outcome: str, stored: str | None) -> Executed:
            return self._executed(ticket, response, outcome, stored)

        return Call(
            "select outcome, response::text from fencepost.player_execute"
            "(%s::text, %s::text, %s::text, %s::jsonb, %s::text, %s::text, %s::bigint, %s::jsonb)",
            (
                ticket.scope,
                ticket.key,
                ticket.digest,
                optional_document("answer", response if keep else None),
                ticket.method,
                optional_text("actor", ticket.actor),
                version,
                document("plan", planned.plan.as_json(planned.seed)),
            ),
            one(read),
        )

    def evict(self, planned: Planned[PlayerPlan]) -> Call[list[int]]:
        return evict(planned.plan.players)

    def _executed(
        self, ticket: Ticket, response: dict[str, Any], outcome: str, stored: str | None
    ) -> Executed:
        if outcome != "claimed":
            return Executed(outcome, parsed(stored))
        self._recollection.raised(ticket.user, response["version"])
        return Executed(outcome, response)
