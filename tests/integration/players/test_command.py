"""`fencepost players`, as an operator calls it, with the catalog of the documentation."""

import re
from pathlib import Path

import pytest

from fencepost.cli._app import run
from fencepost.embedded import Database
from tests.integration.cli.conftest import Answer, Fencepost

REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "players.md"


@pytest.fixture
def fencepost(
    tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Fencepost:
    monkeypatch.chdir(tmp_path)
    for name in ("REDIS_URL", "MIGRATION_DATABASE_URL", "FENCEPOST_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DATABASE_URL", database.url)
    (document,) = re.findall(r"```yaml\n(.*?)```", REFERENCE.read_text(), re.DOTALL)
    Path("game.yaml").write_text(document)

    def call(*arguments: str) -> Answer:
        code = run(["players", *arguments])
        said = capsys.readouterr()
        return Answer(code, said.out, said.err)

    return call


def test_a_game_is_defined_and_a_player_gets_something_once(fencepost: Fencepost) -> None:
    assert fencepost("catalog", "game.yaml").out == "10 definitions.\n"
    assert fencepost("create", "ann").json["version"] == 1
    context = ("grant", "ann", "gold=100", "item:potion=3", "--request-id", "ticket-1", "--actor", "eve")
    assert fencepost(*context).json == fencepost(*context).json
    shown = fencepost("show", "ann", "--json").json
    assert (shown["version"], shown["resources"]) == (2, {"gold": 100})
    assert [held["count"] for held in fencepost("inventory", "ann", "--json").json] == [3]
    newest = fencepost("history", "ann", "--json").json[0]
    assert (newest["actor"], newest["request_id"], newest["source"]) == ("eve", "ticket-1", "operator")
    assert "gold" in fencepost("show", "ann").out
    assert "ticket-1" in fencepost("history", "ann").out
    assert "potion" in fencepost("inventory", "ann").out


def test_the_audit_ends_with_one_when_something_differs(fencepost: Fencepost, database: Database) -> None:
    fencepost("catalog", "game.yaml")
    for player in ("ann", "bob"):
        fencepost("create", player)
    assert fencepost("audit").out == "2 players checked.\n"
    with database.connect_admin() as admin:
        admin.execute("insert into fencepost.player_resource values ('bob', 'gold', 7)")
    answer = fencepost("audit", "--json")
    assert answer.code == 1
    assert [found["player_id"] for found in answer.json["differences"]] == ["bob"]
    assert fencepost("audit", "ann").code == 0


def test_what_is_not_there_or_not_right_is_said_in_a_line(fencepost: Fencepost) -> None:
    assert fencepost("show", "nobody").code == 4
    assert fencepost("grant", "nobody", "gold=1").code == 4
    assert "resources" in fencepost("grant", "ann", "gold=much").err
    Path("wrong.yaml").write_text("items: {potion: {}}")
    assert fencepost("catalog", "wrong.yaml").err == "fencepost: items.potion: stackable Field required.\n"
    Path("wrong.yaml").write_text("itmes: {}")
    assert "unknown section" in fencepost("catalog", "wrong.yaml").err


def test_the_phase_is_shown_and_switched_when_nothing_came(fencepost: Fencepost, database: Database) -> None:
    assert fencepost("request-ids", "--json").json["phase"] == 1
    with database.connect() as connection:
        connection.execute("select fencepost.mutation_unkeyed_note('players', 'UseItem')")
    refused = fencepost("request-ids", "--phase", "2")
    assert (refused.code, "1 requests without an id" in refused.err) == (1, True)
    with database.connect_admin() as admin:
        admin.execute("delete from fencepost.mutation_unkeyed")
    assert fencepost("request-ids", "--phase", "2", "--json").json["phase"] == 2
