"""The pages about players: their code runs, and their settings are all there."""

import re
from pathlib import Path
from typing import Any

from fencepost import Fencepost
from fencepost.embedded import Database
from fencepost_players.mutations.errors import MutationError
from fencepost_players.mutations.settings import MutationSettings
from fencepost_players.service import Players
from tests.integration.mutations.conftest import SCHEMA
from tests.integration.players.conftest import balances, enrol
from tests.unit.mutations.test_errors import kinds

DOCS = Path(__file__).parents[3] / "docs"
REFERENCE = (DOCS / "reference" / "players.md").read_text()
ADOPTING = (DOCS / "how-to" / "mutations-adopt-the-pipeline.md").read_text()


def _silent(*_: object) -> None: ...


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


async def test_the_code_of_the_reference_runs(players: Players, database: Database) -> None:
    await enrol(players, "ann", items={"box": 1})
    with database.connect_admin() as admin:
        admin.execute("create table quest_done (player text, quest int)")
        admin.execute("grant insert on quest_done to fencepost_app")
    (code,) = blocks(REFERENCE, "python")
    names: dict[str, Any] = {"print": _silent}
    exec(compile(code, "players.md", "exec"), names)  # noqa: S102 - Our own page.
    async with Fencepost(database.url) as fp:
        await names["play"](fp)
    assert (await balances(players, "ann")).get("gold", 0) >= 5


def test_the_functions_of_the_how_to_are_those_that_are_tested() -> None:
    """The page grants each function where it makes it, as the owner."""
    for block in blocks(ADOPTING, "sql"):
        made = block.removeprefix("set role fencepost_owner;\n").partition("\ngrant execute")[0]
        assert made.strip() in SCHEMA


def test_the_declaration_of_the_how_to_can_be_made() -> None:
    code = blocks(ADOPTING, "python")[0]
    names: dict[str, Any] = {"__name__": "how_to"}
    exec(compile(code.replace("from __future__", "#"), "adopt.md", "exec"), names)  # noqa: S102 - Our own page.
    assert names["add_some"].method == "AddSome"


def test_every_setting_error_and_mutation_is_in_the_reference() -> None:
    for source in MutationSettings.sources().values():
        assert f"| `{source.env}` | `{source.file}` |" in REFERENCE
    for kind in kinds():
        assert issubclass(kind, MutationError)
        assert kind.code == "internal" or f"| `{kind.code}`" in REFERENCE
    for method in ("CreatePlayer", "UseItem", "GrantItems", "UnlockHeroStage", "Draw", "ClearDungeon"):
        assert f"| `{method}` |" in REFERENCE
