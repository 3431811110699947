"""The page about reserving does what it says."""

import os
import sys
from pathlib import Path

from fencepost.embedded import Database
from tests.integration.client.page import PageRun

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "nonces-reserve.md"


def test_the_page_about_reserving_does_what_it_says(database: Database, tmp_path: Path) -> None:
    environment = os.environ | {
        "DATABASE_URL": database.url,
        "MIGRATION_DATABASE_URL": database.admin_url,
        "LOG_LEVEL": "error",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    assert PageRun(tmp_path, environment, database.connect_admin).run(PAGE) == 5
