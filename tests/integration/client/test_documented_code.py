"""The code of the documentation runs, and prints what the page says."""

import os
import sys
from pathlib import Path

import pytest

from fencepost.embedded import Database
from tests.integration.client.page import Block, PageRun, agrees

DOCS = Path(__file__).parents[3] / "docs"
PAGES = {
    "tutorial/first-effect.md": 6,
    "how-to/use-your-own-connection.md": 4,
    "how-to/asyncpg.md": 1,
    "how-to/sqlalchemy.md": 2,
    "how-to/django.md": 1,
    "how-to/flask-or-scripts.md": 3,
    "how-to/idempotent-endpoints.md": 3,
    "how-to/outbox-deliver.md": 3,
    "how-to/webhooks.md": 5,
    "how-to/take-over-a-lease.md": 2,
    "how-to/elect-a-leader.md": 1,
}
"""With the least number of commands that each shows: a page that runs nothing shows nothing."""
ENDS_A_BACKEND = "how-to/take-over-a-lease.md"


@pytest.mark.parametrize("name", PAGES)
def test_the_page_does_what_it_says(name: str, database: Database, session_url: str, tmp_path: Path) -> None:
    environment = os.environ | {
        "DATABASE_URL": session_url if name == ENDS_A_BACKEND else database.url,
        "MIGRATION_DATABASE_URL": database.admin_url,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    assert PageRun(tmp_path, environment, database.connect_admin).run(DOCS / name) >= PAGES[name]


def test_a_page_that_lies_is_found_out() -> None:
    assert agrees(["one", "two 2", "three"], ["one", "two …", "three"])
    assert agrees(["a", "b", "c"], ["…", "c"])
    assert not agrees(["one"], ["two"])
    assert not agrees(["one", "more"], ["one"])
    assert not agrees([], ["one"])


def test_commands_are_read_with_what_they_print() -> None:
    block = Block("console", "$ python a.py\none\ntwo\n$ python b.py\n")

    assert list(block.commands()) == [("python a.py", ["one", "two"]), ("python b.py", [])]
