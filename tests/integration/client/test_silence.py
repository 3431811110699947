"""A library speaks through the application's own logging: stdout is not ours."""

import os
import subprocess
import sys
from pathlib import Path

from fencepost.embedded import Database

PROGRAM = Path(__file__).with_name("newcomer.py")


def test_an_application_that_configured_no_logging_finds_nothing_of_ours_on_its_stdout(
    database: Database,
) -> None:
    done = subprocess.run(
        [sys.executable, PROGRAM],
        env={**os.environ, "DATABASE_URL": database.url},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    # Everything that has a reason to speak was there; warnings go where Python's own logging sends them.
    assert "the request was refused" in done.stderr
    assert "the job has failed" in done.stderr
    assert "postgresql_drives_alone" in done.stderr
