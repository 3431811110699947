"""The guides from other libraries: the application in that library and the same on Fencepost, as printed."""

import os
import sys
import sysconfig
from importlib.metadata import version
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from bench.environments import CannotInstall, EmptyEnvironment
from fencepost.embedded import Database, ValkeyServer
from tests.integration.client.page import PageRun

DOCS = Path(__file__).parents[3] / "docs/how-to"
GUIDES: dict[str, tuple[list[str], int]] = {
    "migrate-from-an-own-outbox.md": ([], 3),
    "migrate-from-celery.md": (["celery[redis]==5.7.0"], 2),
    "migrate-from-procrastinate.md": (["procrastinate==3.10.0", f"psycopg[binary]=={version('psycopg')}"], 2),
    "migrate-from-rq-or-arq.md": (["rq==2.6.1", "arq==0.28.0"], 3),
}
"""What each guide needs beside us, and how many commands it runs to their end."""
CASES = [
    pytest.param(name, id=name, marks=pytest.mark.full if needed else ())
    for name, (needed, _) in GUIDES.items()
]


@pytest.fixture
def environment(database: Database, redis_url: str, valkey: ValkeyServer) -> dict[str, str]:
    assert redis_url
    return os.environ | {
        "DATABASE_URL": database.url,
        "MIGRATION_DATABASE_URL": database.admin_url,
        "REDIS_URL": valkey.url,
        "PROCRASTINATE_URL": database.admin_url,
        "CELERY_BROKER": f"redis+socket://{unquote(urlsplit(valkey.url).path)}?virtual_host=0",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", CASES)
def test_the_guide_works_as_printed(
    name: str, database: Database, tmp_path: Path, environment: dict[str, str]
) -> None:
    needed, commands = GUIDES[name]
    if needed:
        environment["PATH"] = f"{beside_ours(tmp_path / 'env', needed)}:{environment['PATH']}"
    place = tmp_path / "work"
    place.mkdir()

    assert PageRun(place, environment, database.connect_admin).run(DOCS / name) == commands


def beside_ours(home: Path, needed: list[str]) -> Path:
    """An environment with the other library, whose Python also finds what is installed here."""
    try:
        other = EmptyEnvironment(home)
        other.install(needed)
    except CannotInstall as error:
        pytest.skip(f"{needed} {error}")
    site = next(home.glob("lib/python*/site-packages"))
    (site / "ours.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    return home / "bin"


def test_every_guide_is_run() -> None:
    assert {page.name for page in DOCS.glob("migrate-*.md")} == GUIDES.keys()
