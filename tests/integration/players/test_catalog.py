"""What operators say wrong about the game is named, and what players hold keeps its form."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from fencepost.embedded import Database
from tests.integration.kernel.caller import Caller

PUT = "select fencepost.player_catalog_put(%s, %s, %s)"
SEASON = "select fencepost.player_season_put('summer', 'one', %s, %s, %s)"


@pytest.fixture
def app(database: Database) -> Iterator[Caller]:
    with closing(Caller(database.url)) as caller:
        yield caller


def test_a_definition_is_an_object_and_an_item_says_whether_it_stacks(app: Caller) -> None:
    for kind, definition in (("hero", "[]"), ("hero", None), ("item", "{}"), ("item", '{"stackable": 1}')):
        app.invalid("definition", PUT, kind, "sword", definition)
    app.execute(PUT, "item", "sword", '{"stackable": false}')

    app.execute(PUT, "item", "sword", '{"stackable": false, "power": 7}')
    refused = app.refused("mismatch", PUT, "item", "sword", '{"stackable": true}')

    assert refused.attempted == {"stackable": True}
    assert app.value("select definition ->> 'power' from fencepost.player_things") == "7"


def test_a_season_has_a_pool_an_end_and_entries(app: Caller) -> None:
    entry = '[{"name": "sword"}]'
    app.refused("not_found", SEASON, "2030-01-01", "2030-02-01", entry)
    app.execute(PUT, "pool", "summer", "{}")

    for opens, closes in (("2030-01-01", "2030-01-01"), (None, "2030-01-01"), ("2030-01-01", None)):
        app.invalid("closes_at", SEASON, opens, closes, entry)
    for entries in ("[]", "{}", None):
        app.invalid("entries", SEASON, "2030-01-01", "2030-02-01", entries)
    app.execute(SEASON, "2030-01-01", "2030-02-01", entry)

    assert app.value("select count(*) from fencepost.player_seasons") == 1
