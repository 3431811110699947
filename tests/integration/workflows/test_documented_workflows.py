"""The pages about workflows do what they say."""

import os
import sys
from pathlib import Path

import pytest

from fencepost.embedded import Database, ValkeyServer
from tests.integration.client.page import PageRun

DOCS = Path(__file__).parents[3] / "docs"
PAGES = {
    "how-to/workflows-approval.md": 3,
    "how-to/workflows-fan-out.md": 1,
    "how-to/workflows-from-celery.md": 1,
    "how-to/workflows-from-dbos.md": 2,
    "how-to/workflows-from-temporal.md": 1,
    "how-to/workflows-long-sleeps.md": 1,
    "how-to/workflows-versions.md": 2,
}
"""With the number of commands that each runs to their end."""
QUICK = ("how-to/workflows-approval.md", "how-to/workflows-versions.md")
WITH_ANOTHER_LIBRARY = frozenset({"how-to/workflows-from-dbos.md"})
"""Run from installed wheels alone, where a page may install what it names: tests/acceptance/docs."""
CASES = [
    pytest.param(name, id=name, marks=() if name in QUICK else pytest.mark.full)
    for name in sorted(PAGES.keys() - WITH_ANOTHER_LIBRARY)
]


@pytest.mark.parametrize("name", CASES)
def test_the_page_does_what_it_says(
    name: str, database: Database, redis_url: str, valkey: ValkeyServer, tmp_path: Path
) -> None:
    assert redis_url
    environment = os.environ | {
        "DATABASE_URL": database.url,
        "MIGRATION_DATABASE_URL": database.admin_url,
        "REDIS_URL": valkey.url,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    assert PageRun(tmp_path, environment, database.connect_admin).run(DOCS / name) == PAGES[name]
