"""The code of the documentation runs, and prints what the page says."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from fencepost.embedded import Database
from tests.integration.client.page import Block, agrees, blocks

DOCS = Path(__file__).parents[3] / "docs"
PAGES = {
    "tutorial/first-effect.md": 6,
    "how-to/use-your-own-connection.md": 4,
    "how-to/asyncpg.md": 1,
    "how-to/sqlalchemy.md": 2,
    "how-to/django.md": 1,
    "how-to/flask-or-scripts.md": 2,
    "how-to/idempotent-endpoints.md": 3,
    "how-to/outbox-deliver.md": 3,
    "how-to/take-over-a-lease.md": 2,
    "how-to/elect-a-leader.md": 1,
}
"""With the least number of commands that each shows: a page that runs nothing shows nothing."""
ENDS_A_BACKEND = "how-to/take-over-a-lease.md"


def run_command(command: str, directory: Path, url: str, admin_url: str) -> list[str]:
    bin_directory = Path(sys.executable).parent
    environment = os.environ | {
        "DATABASE_URL": url,
        "MIGRATION_DATABASE_URL": admin_url,
        "PATH": f"{bin_directory}:{os.environ['PATH']}",
    }
    done = subprocess.run(
        shlex.split(command),
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("name", PAGES)
def test_the_page_does_what_it_says(name: str, database: Database, session_url: str, tmp_path: Path) -> None:
    url = session_url if name == ENDS_A_BACKEND else database.url
    ran = 0
    for block in blocks(DOCS / name):
        match block.language:
            case "python":
                (tmp_path / block.file_name).write_text(block.body, encoding="utf-8")
            case "sql":
                with database.connect_admin() as owner:
                    owner.execute(block.body.encode())
            case "console":
                for command, shown in block.commands():
                    printed = run_command(command, tmp_path, url, database.admin_url)
                    assert agrees(printed, shown), f"$ {command}\nprinted {printed}\nshown   {shown}"
                    ran += 1
            case other:
                pytest.fail(f"nobody runs a block of {other}")

    assert ran >= PAGES[name]


def test_a_page_that_lies_is_found_out() -> None:
    assert agrees(["one", "two 2", "three"], ["one", "two …", "three"])
    assert agrees(["a", "b", "c"], ["…", "c"])
    assert not agrees(["one"], ["two"])
    assert not agrees(["one", "more"], ["one"])
    assert not agrees([], ["one"])


def test_commands_are_read_with_what_they_print() -> None:
    block = Block("console", "$ python a.py\none\ntwo\n$ python b.py\n")

    assert list(block.commands()) == [("python a.py", ["one", "two"]), ("python b.py", [])]
