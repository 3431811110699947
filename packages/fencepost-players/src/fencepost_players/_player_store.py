"""The database side of a player's mutations: one function that looks, one that executes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fencepost.kernel.call import (
    Call,
    Row,
    column,
    document,
    one,
    optional_duration,
    optional_text,
    parsed,
    text,
)
from fencepost_players._plan import Needs, PlayerPlan
from fencepost_players._snapshot import PlayerSnapshot
from fencepost_players._snapshot_cache import SnapshotCache
from fencepost_players.mutations._execution import Pending
from fencepost_players.mutations.planning import Planned
from fencepost_players.mutations.store import Executed, Lookup, RequestContext

SERVICE = "players"
# Where the database puts the version into a response: `functions/mutation.sql` uses the same form.
NO_VERSION = '"version":null'


def scope_of(player_id: str) -> str:
    """Request ids belong to a player. `functions/player_execute.sql` and the view use the same form."""
    return f"player:{player_id}"


def evict(players: Sequence[str]) -> Call[list[int]]:
    """Terminate backends that hold one of these players' rows past the limit while others wait."""
    return Call("select * from fencepost.player_evict(%s::text[])", (list(players),), column)


class PlayerStore:
    """The calls that the pipeline makes for players."""

    service = SERVICE

    def __init__(self) -> None:
        self._snapshot_cache = SnapshotCache()

    def scope(self, user: str) -> str:
        return scope_of(user)

    def recall(self, context: RequestContext, needs: Needs) -> Lookup[PlayerSnapshot] | None:
        snapshot = self._snapshot_cache.snapshot(context.user, needs)
        return None if snapshot is None else Lookup("open", None, snapshot.version, snapshot)

    def look(self, context: RequestContext, needs: Needs) -> Call[Lookup[PlayerSnapshot]]:
        return Call(
            "select outcome, response::text, version, state::text"
            " from fencepost.player_look(%s::text, %s::text, %s::text, %s::text, %s::jsonb)",
            (
                context.scope,
                context.key,
                context.digest,
                text("player_id", context.user),
                document("needs", needs.as_json()),
            ),
            one(self._seeing(context)),
        )

    def hold(self, context: RequestContext, needs: Needs) -> Call[Lookup[PlayerSnapshot]] | None:
        if needs.is_of_definitions_only:
            return None
        return Call(
            "select outcome, response::text, version, state::text"
            " from fencepost.player_hold(%s::text, %s::text, %s::text, %s::text, %s::text[], %s::jsonb)",
            (
                context.scope,
                context.key,
                context.digest,
                text("player_id", context.user),
                [context.user, *needs.partners],
                document("needs", needs.as_json()),
            ),
            one(self._seeing(context)),
        )

    def execute_many(
        self, all_pending: Sequence[Pending[PlayerPlan]], *, waits: bool = False
    ) -> Call[list[Executed | None]]:
        """One function and one commit for all; None for one that would have to wait, and must run alone."""
        templates = [_template(each.planned) for each in all_pending]

        def read(rows: Sequence[Row]) -> list[Executed | None]:
            found: list[Executed | None] = [None] * len(all_pending)
            for number, outcome, stored, version in rows:
                place = int(number) - 1
                found[place] = self._executed(
                    all_pending[place].context, templates[place], outcome, stored, version
                )
            return found

        context = all_pending[0].context
        return Call(
            "select place, outcome, response::text, version from fencepost.player_execute_many("
            "%s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::bigint[],"
            " %s::jsonb[], %s::interval, %s::boolean, %s::boolean)",
            (
                [each.context.scope for each in all_pending],
                [each.context.key for each in all_pending],
                [each.context.digest for each in all_pending],
                [
                    template if each.keep else None
                    for each, template in zip(all_pending, templates, strict=True)
                ],
                [each.context.method for each in all_pending],
                [optional_text("actor", each.context.actor) for each in all_pending],
                self._expected(all_pending),
                [_plan(each.planned) for each in all_pending],
                optional_duration("keep", context.keep_seconds),
                context.is_ordered,
                waits,
            ),
            read,
        )

    def execute(
        self, context: RequestContext, planned: Planned[PlayerPlan], version: int | None, *, keep: bool
    ) -> Call[Executed]:
        template = _template(planned)

        def read(outcome: str, stored: str | None, made: int | None) -> Executed:
            return self._executed(context, template, outcome, stored, made)

        return Call(
            "select outcome, response::text, version from fencepost.player_execute"
            "(%s::text, %s::text, %s::text, %s::text, %s::text, %s::text, %s::bigint, %s::jsonb,"
            " %s::interval, %s::boolean)",
            (
                context.scope,
                context.key,
                context.digest,
                template if keep else None,
                context.method,
                optional_text("actor", context.actor),
                version,
                _plan(planned),
                optional_duration("keep", context.keep_seconds),
                context.is_ordered,
            ),
            one(read),
        )

    def evict(self, planned: Planned[PlayerPlan]) -> Call[list[int]]:
        return evict(planned.plan.players)

    def evict_holders(self, context: RequestContext, needs: Needs) -> Call[list[int]]:
        return evict([context.user, *needs.partners])

    def _seeing(self, context: RequestContext) -> Callable[..., Lookup[PlayerSnapshot]]:
        def read(outcome: str, response: str | None, version: int | None, state: str | None) -> Lookup[Any]:
            snapshot = PlayerSnapshot.read(context.user, version, parsed(state) or {})
            self._snapshot_cache.saw(snapshot)
            return Lookup(outcome, parsed(response), version, snapshot, response)

        return read

    def _expected(self, all_pending: Sequence[Pending[PlayerPlan]]) -> list[int | None]:
        """The version that each will most likely find: a right guess saves a second write of the response."""
        expected: dict[str, int] = {}
        versions: list[int | None] = []
        for each in all_pending:
            user = each.context.user
            base = expected.get(user, self._snapshot_cache.version(user) or each.version)
            versions.append(base)
            if base is not None:
                expected[user] = base + 1
        return versions

    def _executed(
        self, context: RequestContext, template: str, outcome: str, stored: str | None, version: int | None
    ) -> Executed:
        if outcome != "claimed" or version is None:
            return Executed(outcome, parsed(stored), stored)
        self._snapshot_cache.raised(context.user, version)
        body = template.replace(NO_VERSION, f'"version":{version}', 1)
        return Executed(outcome, parsed(body), body)


def _template(planned: Planned[PlayerPlan]) -> str:
    return document("answer", planned.plan.response(None))


def _plan(planned: Planned[PlayerPlan]) -> str:
    return document("plan", planned.plan.as_json(planned.seed, is_by_chance=planned.is_by_chance))
