"""The page about reserving does what it says."""

import os
import sys
from pathlib import Path

from fencepost.embedded import Database
from tests.integration.client.page import agrees, blocks
from tests.integration.job_features.test_documented_jobs import run_command

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "nonces-reserve.md"


def test_the_page_about_reserving_does_what_it_says(database: Database, tmp_path: Path) -> None:
    environment = os.environ | {
        "DATABASE_URL": database.url,
        "LOG_LEVEL": "error",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    ran = 0
    for block in blocks(PAGE):
        if block.language == "python":
            (tmp_path / block.file_name).write_text(block.body, encoding="utf-8")
            continue
        for command, shown in block.commands():
            printed = run_command(command, tmp_path, environment)
            assert agrees(printed, shown), f"$ {command}\nprinted {printed}\nshown   {shown}"
            ran += 1
    assert ran == 4
