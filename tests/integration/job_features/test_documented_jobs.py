"""The pages about jobs do what they say. A worker that a page starts runs beside the rest of it."""

import os
import sys
from pathlib import Path

import pytest

from fencepost.embedded import Database, ValkeyServer
from tests.integration.client.page import PageRun

DOCS = Path(__file__).parents[3] / "docs"
PAGES = {
    "tutorial/first-job.md": 5,
    "tutorial/first-workflow.md": 7,
    "how-to/jobs-fastapi.md": 1,
    "how-to/jobs-django.md": 1,
    "how-to/jobs-sqlalchemy.md": 1,
    "how-to/jobs-schedules.md": 8,
    "how-to/jobs-batches.md": 1,
    "how-to/jobs-limits.md": 1,
    "how-to/jobs-search.md": 2,
    "how-to/jobs-tests.md": 1,
    "how-to/jobs-compute.md": 1,
    "how-to/jobs-dead-letters.md": 7,
    "how-to/jobs-deploy.md": 3,
    "how-to/jobs-sentry.md": 1,
    "how-to/jobs-chunks.md": 1,
    "how-to/migrate-from-an-own-outbox.md": 4,
}
"""With the number of commands that each runs to their end."""


@pytest.fixture
def environment(database: Database, redis_url: str, valkey: ValkeyServer) -> dict[str, str]:
    """With the server itself where a Sentinel would tell its address: a page asks it with a plain client."""
    assert redis_url
    return os.environ | {
        "DATABASE_URL": database.url,
        "MIGRATION_DATABASE_URL": database.admin_url,
        "REDIS_URL": valkey.url,
        "JOBS_RECLAIM_INTERVAL_SEC": "0.5",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }


@pytest.mark.parametrize("name", PAGES)
def test_the_page_does_what_it_says(
    name: str, database: Database, tmp_path: Path, environment: dict[str, str]
) -> None:
    assert PageRun(tmp_path, environment, database.connect_admin).run(DOCS / name) == PAGES[name]


def test_every_page_about_jobs_is_run() -> None:
    pages = {f"how-to/{page.name}" for page in (DOCS / "how-to").glob("jobs-*.md")}
    assert pages <= set(PAGES)
