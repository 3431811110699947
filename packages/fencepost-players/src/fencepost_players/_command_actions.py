"""The actions of `fencepost players`."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from fencepost.cli.exit_codes import ExitCode, UserError
from fencepost.cli.job_commands import acting, actor_name
from fencepost.client import Fencepost
from fencepost.kernel.call import Call
from fencepost.kernel.drivers import run
from fencepost.strict_yaml import Budget, load_yaml
from fencepost_players import _queries as queries
from fencepost_players._player_store import SERVICE
from fencepost_players.catalog import DEFINITIONS, Weighted
from fencepost_players.mutations import _request_id_policy as request_id_policy
from fencepost_players.mutations.errors import NoSuchThing
from fencepost_players.mutations.settings import MutationSettings
from fencepost_players.requests import CreatePlayer, GrantItems, PlayerRequest
from fencepost_players.service import Players

T = TypeVar("T")
Facts = dict[str, Any]
PAGE = 1000
CATALOG_BUDGET = Budget(bytes_max=16 << 20, nodes_max=2_000_000)
"""Large, because a game has many items, and the file comes from the game's own operator."""


def show(player_id: str) -> Facts:
    with acting() as connection:
        player = run(connection, queries.state(player_id))
    if player is None:
        raise UserError(f"There is no player {player_id}.", ExitCode.NOT_FOUND)
    facts = asdict(player)
    return {**{name: value for name, value in facts.items() if name != "state"}, **facts["state"]}


def inventory(player_id: str, limit: int) -> list[Facts]:
    show(player_id)
    with acting() as connection:
        return [asdict(held) for held in run(connection, queries.inventory(player_id, limit=limit))]


def history(player_id: str, limit: int) -> list[Facts]:
    show(player_id)
    with acting() as connection:
        return [asdict(event) for event in run(connection, queries.history(player_id, limit=limit))]


def audit(player_id: str | None) -> tuple[int, list[Facts]]:
    """Returns how many players were checked, and the differences."""
    if player_id is not None:
        show(player_id)
    checked, differences = 0, list[Facts]()
    with acting() as connection:
        page = [player_id] if player_id else run(connection, queries.ids(limit=PAGE))
        while page:
            for one in page:
                found = run(connection, queries.audit_check(one))
                differences += [{"player_id": one, **asdict(difference)} for difference in found]
            checked += len(page)
            page = [] if player_id else run(connection, queries.ids(after=page[-1], limit=PAGE))
    return checked, differences


def load_catalog(file: Path) -> int:
    """Load all of it or nothing: the whole file is read before anything is written."""
    calls = list(catalog_calls(_read(file)))
    with acting() as connection, connection.transaction():
        for call in calls:
            run(connection, call)
    return len(calls)


def catalog_calls(document: Mapping[str, Any]) -> Iterable[Call[None]]:
    """The calls for the sections by kind, and for `seasons` by pool. An error names the wrong definition."""
    for section, things in _named("the file", document).items():
        kind = section.removesuffix("es" if section == "heroes" else "s")
        if kind == "season":
            yield from _seasons(_named(section, things))
        elif kind in DEFINITIONS:
            for name, facts in _named(section, things).items():
                yield queries.define(
                    kind, name, _checked(f"{section}.{name}", DEFINITIONS[kind], facts or {})
                )
        else:
            raise UserError(f"{section}: unknown section; allowed: seasons, and one section per kind.")


def create(player_id: str, actor: str | None) -> Any:
    return _perform(CreatePlayer(player_id=player_id), f"create-{player_id}", actor)


def grant(
    player_id: str, things: Sequence[str], *, source: str, request_id: str | None, actor: str | None
) -> Any:
    items: list[Facts] = []
    resources: dict[str, str] = {}
    for thing in things:
        name, _, count = thing.partition("=")
        if name.startswith("item:"):
            items.append({"item": name.removeprefix("item:"), "count": count})
        else:
            resources[name] = count
    facts = {"player_id": player_id, "items": items, "resources": resources, "source": source}
    return _perform(_checked("grant", GrantItems, facts), request_id or str(uuid.uuid4()), actor)


def request_ids(phase: int | None, actor: str | None) -> Facts:
    window_seconds = MutationSettings.load().unkeyed_window_seconds
    with acting() as connection:
        if phase is not None:
            call = request_id_policy.set_phase(SERVICE, phase, window_seconds, actor=actor_name(actor))
            run(connection, call)
        rates = run(connection, request_id_policy.rate(SERVICE, window_seconds))
        present = run(connection, request_id_policy.phase(SERVICE))
    return {
        "phase": present,
        "window_seconds": window_seconds,
        "without_id": [asdict(rate) for rate in rates],
    }


def lines(facts: Mapping[str, Any]) -> str:
    return "\n".join(f"{name:<16} {value}" for name, value in facts.items())


def line(facts: Mapping[str, Any]) -> str:
    return "  ".join(f"{name}={value}" for name, value in facts.items() if value is not None)


def _perform(request: PlayerRequest, request_id: str, actor: str | None) -> Any:
    async def act(players: Players) -> Any:
        return (await players.run(request, request_id=request_id, actor=actor_name(actor))).response

    return asyncio.run(_with_players(act))


async def _with_players(act: Callable[[Players], Awaitable[T]]) -> T:
    async with Fencepost.from_env() as fp:
        players = Players(fp, MutationSettings.load())
        try:
            return await act(players)
        except NoSuchThing as error:
            raise UserError(str(error), ExitCode.NOT_FOUND) from error
        finally:
            await players.close()


def _seasons(pools: Mapping[str, Any]) -> Iterable[Call[None]]:
    for pool, seasons in pools.items():
        for season, given in _named(f"seasons.{pool}", seasons).items():
            place = f"seasons.{pool}.{season}"
            facts = _named(place, given)
            try:
                opens_at, closes_at = (
                    TypeAdapter(datetime).validate_python(facts[name]) for name in ("opens_at", "closes_at")
                )
            except (KeyError, ValidationError):
                raise UserError(f"{place}: opens_at and closes_at must be times.") from None
            listed: object = facts.get("entries", [])
            if not isinstance(listed, list):
                raise UserError(f"{place}: entries must be a list.")
            entries = [_checked(place, Weighted, entry) for entry in cast("list[object]", listed)]
            yield queries.open_season(
                pool, season, opens_at, closes_at, [entry.model_dump(mode="json") for entry in entries]
            )


def _named(place: str, things: object) -> dict[str, Any]:
    """A section, as a mapping by name."""
    if not isinstance(things, dict):
        raise UserError(f"{place} must be a mapping of names to definitions.")
    return {str(name): thing for name, thing in cast("dict[object, Any]", things).items()}


def _checked(place: str, kind: type[Any], facts: Any) -> Any:
    try:
        return kind.model_validate(facts)
    except ValidationError as error:
        detail = error.errors()[0]
        field = ".".join(str(part) for part in detail["loc"])
        raise UserError(f"{place}: {field} {detail['msg']}.") from None


def _read(file: Path) -> Mapping[str, Any]:
    try:
        document = load_yaml(file.read_text(encoding="utf-8"), CATALOG_BUDGET)
    except (OSError, ValueError) as error:
        raise UserError(f"{file} cannot be read: {error}") from None
    if not isinstance(document, dict):
        raise UserError(f"{file} must hold sections, such as items: and pools:.")
    return cast("Mapping[str, Any]", document)
