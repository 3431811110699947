"""The page about placing orders does what it says, and the reference lists what there is."""

import re
import subprocess
import sys
from pathlib import Path

from fencepost.embedded import Database
from fencepost.layered_settings import LayeredSettings
from fencepost.outbox.settings import OutboxSettings
from fencepost_orders._settings import OrdersSettings
from tests.integration.client.page import agrees, blocks

DOCS = Path(__file__).parents[3] / "docs"


def test_the_page_about_placing_orders_does_what_it_says(database: Database, tmp_path: Path) -> None:
    ran = 0
    for block in blocks(DOCS / "how-to" / "orders-place.md"):
        if block.language == "python":
            (tmp_path / block.file_name).write_text(block.body, encoding="utf-8")
        if block.language == "console":
            for command, shown in block.commands():
                done = subprocess.run(
                    [sys.executable, *command.split()[1:]],
                    cwd=tmp_path,
                    env={"DATABASE_URL": database.url, "PATH": ""},
                    capture_output=True,
                    text=True,
                    check=False,
                    timeout=60,
                )
                assert agrees(done.stdout.splitlines(), shown), done.stdout + done.stderr
                ran += 1
    assert ran == 1


def test_the_reference_has_every_setting_and_its_default() -> None:
    page = "".join((DOCS / "reference" / name).read_text() for name in ("orders.md", "settings.md"))
    classes: tuple[type[LayeredSettings], ...] = (OrdersSettings, OutboxSettings)
    for cls in classes:
        for source in cls.sources().values():
            assert re.search(rf"^\| `{source.env}` \| `{re.escape(source.file)}` \|", page, re.MULTILINE), (
                source
            )
