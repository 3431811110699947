"""The page about placing orders does what it says, and the reference lists what there is."""

import re
import sys
from pathlib import Path

from fencepost.embedded import Database
from fencepost.layered_settings import LayeredSettings
from fencepost.outbox.settings import OutboxSettings
from fencepost_orders._settings import OrdersSettings
from tests.integration.client.page import PageRun

DOCS = Path(__file__).parents[3] / "docs"


def test_the_page_about_placing_orders_does_what_it_says(database: Database, tmp_path: Path) -> None:
    environment = {
        "DATABASE_URL": database.url,
        "MIGRATION_DATABASE_URL": database.admin_url,
        "PATH": str(Path(sys.executable).parent),
    }
    page = DOCS / "how-to" / "orders-place.md"
    assert PageRun(tmp_path, environment, database.connect_admin).run(page) == 2


def test_the_reference_has_every_setting_and_its_default() -> None:
    page = "".join((DOCS / "reference" / name).read_text() for name in ("orders.md", "settings.md"))
    classes: tuple[type[LayeredSettings], ...] = (OrdersSettings, OutboxSettings)
    for cls in classes:
        for source in cls.sources().values():
            assert re.search(rf"^\| `{source.env}` \| `{re.escape(source.file)}` \|", page, re.MULTILINE), (
                source
            )
