"""Amounts of many players in a few statements: each as if it were alone, or it is left to go alone."""

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, LiteralString

import psycopg
import pytest

from fencepost.embedded import Database
from fencepost.kernel.drivers import run
from fencepost_players._queries import audit_check
from fencepost_players.service import Players
from tests.integration.kernel.caller import Caller
from tests.integration.players.conftest import enrol
from tests.integration.players.test_teeth import EXECUTE, mutate

AMOUNTS = (
    "fencepost._player_execute_amounts(text[],text[],text[],text[],text[],text[],bigint[],jsonb[],interval,"
    "boolean,boolean,boolean)"
)
MOST = 9223372036854775807


@dataclass(frozen=True)
class Wish:
    """One mutation of the batch. The version is the player's own unless a test says another."""

    player: str
    change: dict[str, Any] = field(default_factory=lambda: {"resources": {"gold": 1}})
    key: str = "k1"
    digest: str = "d"
    late: int = 0
    scope: str | None = None


class Table:
    """One connection: it brings batches, and looks at what became of them."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.caller = Caller(url)

    def tuples(self, query: LiteralString, *values: Any) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for row in self.caller.rows(query, *values)]

    def bring(self, *wishes: Wish) -> list[str | None]:
        """The outcome of each; None for one who must go alone."""
        known = dict(self.tuples("select user_id, data_version from fencepost.players"))
        answers = self.tuples(
            "select place, outcome, response, version from fencepost.player_execute_many(%s, %s, %s,"
            " %s::text[], %s, %s, %s::bigint[], %s::jsonb[], '1 hour', false, false)",
            [wish.scope or f"player:{wish.player}" for wish in wishes],
            [wish.key for wish in wishes],
            [wish.digest for wish in wishes],
            [json.dumps({"told": w.player, "version": None}, separators=(",", ":")) for w in wishes],
            ["Grant"] * len(wishes),
            ["ann"] * len(wishes),
            [known.get(wish.player, 1) - wish.late for wish in wishes],
            [
                json.dumps({"parties": [{"player": w.player, "change": w.change}], "seed": "7"})
                for w in wishes
            ],
        )
        outcomes: list[str | None] = [None] * len(wishes)
        for place, outcome, response, version in answers:
            wish, kept_version = wishes[int(place) - 1], response["version"] if response else None
            told: dict[str, Any] = {"told": wish.player, "version": version or kept_version}
            assert response == (told if outcome in {"claimed", "replay"} else None)
            if outcome == "claimed":
                kept = "select response from fencepost.idempotency_keys where scope = %s and key = %s"
                assert self.tuples(kept, wish.scope or f"player:{wish.player}", wish.key) == [(told,)]
            outcomes[place - 1] = outcome
        return outcomes

    def gold(self, player: str) -> int:
        found = self.tuples(
            "select balance from fencepost.player_resource where player_id = %s and resource = 'gold'", player
        )
        return int(found[0][0]) if found else 0

    def holds_together(self) -> bool:
        """Whether the audit explains what everybody has."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            return not any(run(connection, audit_check(name)) for name in ("ann", "bob", "cat"))


@pytest.fixture
async def table(players: Players, database: Database) -> AsyncGenerator[Table]:
    for name in ("ann", "bob", "cat"):
        await enrol(players, name, gold=10)
    table = Table(database.admin_url)
    with closing(table.caller):
        yield table


def test_a_scope_that_several_players_share_tells_their_requests_apart(table: Table) -> None:
    done = Wish("ann", scope="guild:7")
    assert table.bring(done) == ["claimed"]

    assert table.bring(done, Wish("bob", key="k2", scope="guild:7")) == ["replay", "claimed"]

    assert (table.gold("ann"), table.gold("bob")) == (11, 11)


@pytest.fixture
def only_together(table: Table, database: Database) -> None:
    """None is executed alone: what is done here is done together."""
    mutate(database, EXECUTE, "if outcome <> 'claimed' then", "raise exception 'one by one'; if false then")


def test_amounts_of_many_are_changed_together_and_written_down(table: Table, only_together: None) -> None:
    change = {"resources": {"gold": -10, "gem": 2}, "stacks": {"potion": 3}}

    assert table.bring(Wish("cat"), Wish("ann"), Wish("bob", change)) == ["claimed"] * 3

    assert [table.gold(name) for name in ("ann", "bob", "cat")] == [11, 0, 11]
    audited = table.tuples(
        "select player_id, version, method, request_id, source, actor, seed, changes"
        " from fencepost.player_audit where request_id = 'k1' order by player_id"
    )
    assert [row[0] for row in audited] == ["ann", "bob", "cat"]
    assert audited[1][2:] == ("Grant", "k1", "Grant", "ann", "7", change)
    assert table.holds_together()


def test_several_of_one_player_follow_each_other(table: Table, only_together: None) -> None:
    wishes = [Wish("ann", key=f"k{n}") for n in range(4)]

    assert table.bring(*wishes, Wish("bob")) == ["claimed"] * 5

    assert (table.gold("ann"), table.gold("bob")) == (14, 11)
    versions = (
        "select request_id, version from fencepost.player_audit where method = 'Grant' and player_id = 'ann'"
    )
    assert table.tuples(versions + " order by audit_id") == [(f"k{n}", 3 + n) for n in range(4)]
    assert table.tuples("select data_version from fencepost.players where user_id = 'ann'") == [(6,)]
    assert table.holds_together()


def test_copies_of_one_request_in_one_batch_are_done_once(table: Table) -> None:
    assert table.bring(Wish("ann"), Wish("ann"), Wish("ann", digest="another")) == [
        "claimed",
        "replay",
        "mismatch",
    ]
    assert table.gold("ann") == 11
    assert table.holds_together()


def test_what_several_take_together_must_be_there_for_each(table: Table) -> None:
    take, give = {"resources": {"gold": -6}}, {"resources": {"gold": 3}}

    outcomes = table.bring(Wish("ann", take, "k1"), Wish("ann", take, "k2"), Wish("ann", give, "k3"))

    assert outcomes == ["claimed", None, "claimed"], "the second would have to wait for the third"
    assert table.gold("ann") == 7
    assert table.holds_together()


def test_a_version_that_was_not_expected_is_taken_over(table: Table, only_together: None) -> None:
    assert table.bring(Wish("ann", late=1), Wish("bob", late=-1), Wish("cat")) == ["claimed"] * 3
    assert [table.gold(name) for name in ("ann", "bob", "cat")] == [11, 11, 11]


def test_whose_key_is_there_gets_its_answer_and_the_others_are_done(table: Table) -> None:
    assert table.bring(Wish("ann")) == ["claimed"]

    assert table.bring(Wish("ann"), Wish("bob")) == ["replay", "claimed"]
    assert table.bring(Wish("ann", digest="another"), Wish("cat")) == ["mismatch", "claimed"]

    assert [table.gold(name) for name in ("ann", "bob", "cat")] == [11, 11, 11]


OBSTACLES = {
    "too little": Wish("ann", {"resources": {"gold": -11}}),
    "too much": Wish("ann", {"resources": {"gold": MOST}}),
    "far too much": Wish("ann", {"resources": {"gold": MOST * 10}}),
    "an unknown resource": Wish("ann", {"resources": {"gold": 1, "mud": 1}}),
    "an unknown item": Wish("ann", {"stacks": {"mud": 1}}),
    "an item that is no count": Wish("ann", {"stacks": {"sword": 1}}),
    "too few items": Wish("ann", {"stacks": {"potion": -1}}),
    "a player who is not there": Wish("zoe"),
    "a key that is too long": Wish("ann", key="k" * 513),
}


@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_a_caller_that_cannot_be_carried_goes_alone_and_leaves_nothing(table: Table, obstacle: str) -> None:
    meant = OBSTACLES[obstacle]

    assert table.bring(Wish("cat"), meant, Wish("bob")) == ["claimed", None, "claimed"]

    assert [table.gold(name) for name in ("ann", "bob", "cat")] == [10, 11, 11]
    keys = table.tuples("select scope from fencepost.idempotency_keys where key = %s order by 1", meant.key)
    assert (f"player:{meant.player}",) not in keys
    assert table.holds_together()


def test_a_held_row_holds_up_no_other_caller(table: Table, database: Database) -> None:
    with closing(Caller(database.admin_url)) as other, other.transaction():
        other.execute("select from fencepost.player where player_id = 'ann' for update")

        assert table.bring(Wish("ann"), Wish("bob")) == [None, "claimed"]


def test_a_key_that_is_under_way_is_told_so(table: Table, database: Database) -> None:
    with closing(Caller(database.admin_url)) as other, other.transaction():
        other.execute("select * from fencepost.claim('player:ann', 'k1', 'd')")

        assert table.bring(Wish("ann"), Wish("bob")) == ["in_flight", "claimed"]


BUGS: dict[str, tuple[str, str, Callable[[Table], object]]] = {
    "the response keeps the version that was expected": (
        "and f.version <> p_versions[f.place] + 1",
        "and false",
        lambda table: test_a_version_that_was_not_expected_is_taken_over(table, None),
    ),
    "a copy in the same batch is done too": (
        "where f.copy = 1 and",
        "where",
        test_copies_of_one_request_in_one_batch_are_done_once,
    ),
    "amounts are not judged": (
        "if exists (select from fencepost._player_amounts_unfit(v_players, v_changes)) then",
        "if false then",
        lambda table: test_a_caller_that_cannot_be_carried_goes_alone_and_leaves_nothing(
            table, "an unknown resource"
        ),
    ),
    "a mutation whose key is there is executed all the same": (
        "if cardinality(v_fresh) is distinct from cardinality(v_places) then",
        "if false then",
        test_whose_key_is_there_gets_its_answer_and_the_others_are_done,
    ),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_noticed(table: Table, database: Database, bug: str) -> None:
    right, wrong, check = BUGS[bug]
    mutate(database, AMOUNTS, right, wrong)
    with pytest.raises(AssertionError):
        check(table)


GIVES_ITSELF = {"stacks": {"potion": 4}, "paid": {"stacks": {"potion": 1}}}
PAYS_BACK = {"resources": {"gold": 5}, "paid": {"resources": {"gold": 11}}}


@pytest.mark.parametrize("change", [GIVES_ITSELF, PAYS_BACK, {"paid": PAYS_BACK["paid"]}])
def test_what_is_paid_must_be_there_whatever_comes_back(table: Table, change: dict[str, Any]) -> None:
    assert table.bring(Wish("ann", change), Wish("bob")) == [None, "claimed"]
    assert table.bring(Wish("cat", {"resources": {"gold": 1}, "stacks": {"potion": 1}})) == ["claimed"]

    assert table.bring(Wish("cat", change, key="k2")) == ["claimed"]

    assert table.holds_together()
