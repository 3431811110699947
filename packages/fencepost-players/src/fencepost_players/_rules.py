"""The mutations of a player, each declared once. Pure: snapshot, request and Rng make a plan or a refusal.

Amounts are not checked here: the database checks on the locked row whether there is enough. What decides
*which* plan is made (a hero's stage, draws, clears, lessons, pieces) goes into the plan and is compared again
there.
"""

from __future__ import annotations

from typing import Any

from fencepost_players import requests
from fencepost_players._plan import Change, Needs, Party, PlayerPlan
from fencepost_players._snapshot import PlayerSnapshot, Season
from fencepost_players.catalog import Dungeon, Hero, Item, Lesson, Pool, Reward, Weighted
from fencepost_players.mutations.errors import FailedPrecondition, InvalidArgument, NoSuchThing
from fencepost_players.mutations.planning import Rng, mutation

Json = dict[str, Any]


def _needs_nothing(request: requests.CreatePlayer) -> Needs:
    return Needs()


@mutation("CreatePlayer", needs=_needs_nothing)
def create_player(snapshot: PlayerSnapshot, request: requests.CreatePlayer, rng: Rng) -> PlayerPlan:
    """Make a new player."""
    if snapshot.version is not None:
        raise FailedPrecondition(f"The player {request.player_id} exists already.", reason="player_exists")
    return _plan(request, Change(), {}, creates=True)


def _needs_of_use(request: requests.UseItem) -> Needs:
    return Needs(
        catalog=(("item", request.item),), pieces=(str(request.piece_id),) if request.piece_id else ()
    )


@mutation("UseItem", needs=_needs_of_use)
def use_item(snapshot: PlayerSnapshot, request: requests.UseItem, rng: Rng) -> PlayerPlan:
    """Use an item: gives its rewards, and a random entry of its box."""
    item = snapshot.defined("item", request.item, Item)
    if not item.is_usable:
        raise FailedPrecondition(f"{request.item} has no effect and cannot be used.", reason="no_effect")
    if item.stackable == (request.piece_id is not None) or (request.piece_id and request.count > 1):
        raise InvalidArgument(
            f"{request.item} is used by {'its count' if item.stackable else 'the id of one piece'}.",
            argument="piece_id",
        )
    change = Change()
    if request.piece_id is None:
        change.take_item(request.item, request.count)
    else:
        change.pieces_removed.append(snapshot.piece(str(request.piece_id), request.item))
    rewards = [reward for _ in range(request.count) for reward in _opened(item.rewards, item.box, rng)]
    return _plan(request, change, {"granted": change.give(rewards, rng)})


def _needs_of_grant(request: requests.GrantItems) -> Needs:
    return Needs(catalog=tuple(("item", grant.item) for grant in request.items))


@mutation("GrantItems", needs=_needs_of_grant)
def grant_items(snapshot: PlayerSnapshot, request: requests.GrantItems, rng: Rng) -> PlayerPlan:
    """Grant items and amounts; the response is in the order of the request."""
    change = Change()
    rewards = [_granted(snapshot, grant) for grant in request.items]
    if sum(reward.count for reward in rewards if reward.piece is not None) > requests.PIECES_MAX:
        raise InvalidArgument(f"At most {requests.PIECES_MAX} pieces at once.", argument="items.count")
    granted = change.give(rewards, rng)
    granted += change.give([Reward(resource=name, count=n) for name, n in request.resources.items()], rng)
    return _plan(request, change, {"granted": granted}, source=request.source)


def _granted(snapshot: PlayerSnapshot, grant: requests.ItemGrant) -> Reward:
    if snapshot.defined("item", grant.item, Item).stackable:
        if grant.metadata or grant.enhance_level or grant.quality:
            raise InvalidArgument(
                f"{grant.item} is stackable: all pieces are alike, so it has no level, quality or metadata.",
                argument="items.metadata",
            )
        return Reward(item=grant.item, count=grant.count)
    return Reward(
        piece=grant.item,
        count=grant.count,
        enhance_level=grant.enhance_level,
        quality=grant.quality,
        metadata=grant.metadata,
    )


def _needs_of_stage(request: requests.UnlockHeroStage) -> Needs:
    return Needs(catalog=(("hero", request.hero),), heroes=(request.hero,))


@mutation("UnlockHeroStage", needs=_needs_of_stage)
def unlock_hero_stage(snapshot: PlayerSnapshot, request: requests.UnlockHeroStage, rng: Rng) -> PlayerPlan:
    """Unlock the next stage of a hero."""
    hero = snapshot.defined("hero", request.hero, Hero)
    present = snapshot.heroes.get(request.hero, 0)
    if request.stage > len(hero.stages):
        raise NoSuchThing(f"{request.hero} has {len(hero.stages)} stages.", noun="stage", name=request.stage)
    if request.stage != present + 1:
        raise FailedPrecondition(
            f"{request.hero} is at stage {present}: the next one is {present + 1}.", reason="not_next_stage"
        )
    stage = hero.stages[request.stage - 1]
    change = Change(heroes=[{"hero": request.hero, "from": present, "to": request.stage}])
    change.take(stage.cost)
    answer = {"hero": request.hero, "stage": request.stage, "granted": change.give(stage.rewards, rng)}
    return _plan(request, change, answer)


def _needs_of_draw(request: requests.Draw) -> Needs:
    return Needs(catalog=(("pool", request.pool),), pools=(request.pool,))


@mutation("Draw", needs=_needs_of_draw)
def draw(snapshot: PlayerSnapshot, request: requests.Draw, rng: Rng) -> PlayerPlan:
    """Draw from a pool. Without an open season nothing is taken and nothing is written."""
    pool = snapshot.defined("pool", request.pool, Pool)
    season = snapshot.pools.get(request.pool)
    if season is None:
        raise FailedPrecondition(
            f"The pool {request.pool} has no open season.", reason="no_season", pool=request.pool
        )
    drawn, dry = _draw(pool, season, request.count, rng)
    change = Change(
        draws=[
            {
                "pool": request.pool,
                "season": season.season,
                "before": season.draws,
                "count": request.count,
                "dry_before": season.dry,
                "dry": dry,
            }
        ]
    )
    change.take(pool.cost, request.count)
    granted = change.give([entry.reward for entry in drawn], rng)
    rarities = [entry.rarity for entry in drawn]
    answer = {"pool": request.pool, "season": season.season, "granted": granted, "rarities": rarities}
    return _plan(request, change, answer)


def _draw(pool: Pool, season: Season, count: int, rng: Rng) -> tuple[list[Weighted], int]:
    """The entries drawn, and the dry draws since the last rare one."""
    rare = [entry for entry in season.entries if entry.rarity >= pool.guarantee_rarity]
    dry = season.dry
    drawn: list[Weighted] = []
    for _ in range(count):
        is_due = pool.guarantee_after is not None and dry + 1 >= pool.guarantee_after and bool(rare)
        entry = _pick(rare if is_due else season.entries, rng)
        dry = 0 if entry.rarity >= pool.guarantee_rarity else dry + 1
        drawn.append(entry)
    return drawn, dry


def _needs_of_clear(request: requests.ClearDungeon) -> Needs:
    return Needs(catalog=(("dungeon", request.dungeon),), dungeons=(request.dungeon,))


@mutation("ClearDungeon", needs=_needs_of_clear)
def clear_dungeon(snapshot: PlayerSnapshot, request: requests.ClearDungeon, rng: Rng) -> PlayerPlan:
    """Clear a dungeon: gives its rewards, and more for the first time."""
    dungeon = snapshot.defined("dungeon", request.dungeon, Dungeon)
    before = snapshot.clears.get(request.dungeon, 0)
    change = Change(clears=[{"dungeon": request.dungeon, "before": before}])
    change.take(dungeon.cost)
    rewards = [*_opened(dungeon.rewards, dungeon.box, rng), *(dungeon.first_rewards if before == 0 else ())]
    answer = {"dungeon": request.dungeon, "clears": before + 1, "granted": change.give(rewards, rng)}
    return _plan(request, change, answer)


def _needs_of_lesson(request: requests.Teach) -> Needs:
    return Needs(catalog=(("lesson", request.lesson),), lessons=(request.lesson,))


@mutation("Teach", needs=_needs_of_lesson)
def teach(snapshot: PlayerSnapshot, request: requests.Teach, rng: Rng) -> PlayerPlan:
    """Teach a lesson; it is rewarded once."""
    lesson = snapshot.defined("lesson", request.lesson, Lesson)
    if request.lesson in snapshot.lessons:
        raise FailedPrecondition(f"{request.lesson} was taught already.", reason="taught_already")
    change = Change(lessons=[request.lesson])
    return _plan(request, change, {"lesson": request.lesson, "granted": change.give(lesson.rewards, rng)})


def _needs_of_transfer(request: requests.Transfer) -> Needs:
    return Needs(pieces=tuple(str(piece) for piece in request.pieces), partners=(request.to_player_id,))


@mutation("Transfer", needs=_needs_of_transfer)
def transfer(snapshot: PlayerSnapshot, request: requests.Transfer, rng: Rng) -> PlayerPlan:
    """Give to another player: both change, or neither."""
    snapshot.require_player(request.player_id)
    giver, taker = Change(), Change()
    for name, amount in request.resources.items():
        giver.resources[name] -= amount
        taker.resources[name] += amount
    for name, count in request.items.items():
        giver.stacks[name] -= count
        taker.stacks[name] += count
    for piece_id in dict.fromkeys(request.pieces):
        piece = snapshot.piece(str(piece_id))
        giver.pieces_removed.append(piece)
        taker.pieces_added.append(piece)
    parties = (Party(request.player_id, giver), Party(request.to_player_id, taker))
    return PlayerPlan(parties, {"to_player_id": request.to_player_id})


def _plan(
    request: requests.PlayerRequest,
    change: Change,
    answer: Json,
    *,
    source: str | None = None,
    creates: bool = False,
) -> PlayerPlan:
    return PlayerPlan((Party(request.player_id, change),), answer, source, creates)


def _opened(rewards: tuple[Reward, ...], box: tuple[Weighted, ...], rng: Rng) -> list[Reward]:
    return [*rewards, *([_pick(box, rng).reward] if box else [])]


def _pick(entries: tuple[Weighted, ...] | list[Weighted], rng: Rng) -> Weighted:
    return rng.pick([(entry, entry.weight) for entry in entries])
