"""The tutorials and how-tos, exactly as printed, from installed wheels: in an empty environment and an empty
directory, with the servers that the page starts itself."""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import psycopg
import pytest

from bench.environments import EmptyEnvironment, build_wheels, pinned
from bench.install import IMPORT_MS_MAX, MEGABYTES_MAX, PACKAGES_MAX, import_ms
from fencepost.server_addresses import ServerAddresses, read_note
from tests.acceptance.docs import debian
from tests.integration.client.page import UP, Owners, PageRun, blocks, left_out
from tests.integration.client.test_documented_code import PAGES as CLIENT_PAGES
from tests.integration.job_features.test_documented_jobs import PAGES as JOB_PAGES
from tests.integration.replication.replicas import replicas
from tests.integration.replication.two_versions import two_versions
from tests.integration.workflows.test_documented_workflows import PAGES as WORKFLOW_PAGES

DOCS = Path(__file__).parents[3] / "docs"
PROJECTS = tuple(sorted(folder.name for folder in (DOCS.parent / "packages").iterdir()))
PAGES = {
    **CLIENT_PAGES,
    **JOB_PAGES,
    **WORKFLOW_PAGES,
    "tutorial/first-flow.md": 6,
    "how-to/console-users.md": 7,
    "how-to/deploy.md": 4,
    "how-to/failover-cloudnativepg.md": 3,
    "how-to/failover-managed.md": 3,
    "how-to/failover-patroni.md": 1,
    "how-to/follow-a-trace.md": 2,
    "how-to/judge-contest.md": 5,
    "how-to/judge-direct-path.md": 2,
    "how-to/judge-embed.md": 4,
    "how-to/nonces-recover.md": 10,
    "how-to/nonces-transactions.md": 6,
    "how-to/pgbouncer.md": 4,
    "how-to/proxies.md": 4,
    "how-to/recover-from-a-backup.md": 8,
    "how-to/several-clusters.md": 3,
    "how-to/workflows-saga.md": 10,
    "how-to/nonces-reserve.md": 5,
    "how-to/orders-place.md": 2,
    "how-to/flows-dead-letters.md": 4,
    "how-to/flows-own-sink.md": 1,
    "how-to/flows-stuck.md": 5,
    "how-to/flows-replay.md": 9,
    "how-to/webhooks-receive.md": 2,
    "how-to/flows-upgrade.md": 2,
    "how-to/judge-problems.md": 4,
    "how-to/look-at-a-demo.md": 0,
    "how-to/migrate-from-celery.md": 2,
    "how-to/migrate-from-procrastinate.md": 2,
    "how-to/migrate-from-rq-or-arq.md": 3,
    "how-to/mutations-adopt-the-pipeline.md": 2,
    "how-to/mutations-require-ids.md": 3,
    "how-to/orders-own-broker.md": 2,
    "how-to/test-your-own-code.md": 1,
    "how-to/torture-your-own-application.md": 1,
    "how-to/upgrade-postgresql.md": 4,
    "how-to/write-a-service.md": 3,
}
"""With the least number of commands that each runs to its end."""
NOT_RUN = {"how-to/README.md": "a list of the pages"}
LEFT_OUT = {
    "how-to/console-users.md": 1,
    "how-to/deploy.md": 2,
    "how-to/failover-cloudnativepg.md": 4,
    "how-to/failover-managed.md": 1,
    "how-to/flows-upgrade.md": 1,
    "how-to/nonces-transactions.md": 3,
    "how-to/orders-place.md": 4,
    "how-to/outbox-deliver.md": 1,
    "how-to/pgbouncer.md": 1,
    "how-to/recover-from-a-backup.md": 2,
    "how-to/workflows-from-temporal.md": 1,
    "how-to/workflows-saga.md": 4,
    "how-to/write-a-service.md": 1,
}
"""How many blocks of a page are only looked at. The end of the run prints each of them with its reason."""
BROUGHT = {"how-to/write-a-service.md": "examples/coupons", "how-to/deploy.md": "deploy"}
"""What the directory of a page has in it: the folder of the repository that it explains."""
TUTORIALS = sorted(f"tutorial/{page.name}" for page in (DOCS / "tutorial").glob("*.md"))
CASES = [pytest.param(name, id=name, marks=() if name in TUTORIALS else pytest.mark.full) for name in PAGES]
MACHINE = ("HOME", "LANG", "TMPDIR", "SSL_CERT_FILE")


class Wheels(NamedTuple):
    directory: Path
    constraints: Path
    """The versions of the lock file, which uv has in its cache."""

    def install(self, environment: EmptyEnvironment, packages: Iterable[str], *, pins: bool = True) -> None:
        """Without pins for a page that installs another library, which decides about versions too."""
        options: list[str | Path] = ["--constraint", self.constraints] if pins else []
        environment.install(packages, "--find-links", self.directory, *options)


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Wheels:
    """Built once for all processes of the session."""
    base = tmp_path_factory.getbasetemp()
    place = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "wheels"
    place.mkdir(exist_ok=True)
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if len(list(place.glob("*.whl"))) < len(PROJECTS):
            build_wheels(PROJECTS, place)
        return Wheels(place, pinned(place))


class Newcomer:
    """A user with an empty environment and an empty directory."""

    def __init__(self, wheels: Wheels, place: Path) -> None:
        self._wheels = wheels
        self.pins = True
        self._environment = EmptyEnvironment(place / "env")
        self.directory = place / "work"
        self.directory.mkdir()
        self.variables = {name: os.environ[name] for name in MACHINE if name in os.environ}
        self.instead: Mapping[str, str] = {}
        self.owners: Owners = {}
        self._programs = place / "programs"
        self._programs.mkdir()
        own = f"{self._environment.home / 'bin'}:{self._programs}"
        self.variables["PATH"] = f"{own}:/usr/local/bin:/usr/bin:/bin"

    def install(self, packages: Iterable[str]) -> None:
        here = (str(self.directory / name) if name.startswith("./") else name for name in packages)
        self._wheels.install(self._environment, here, pins=self.pins)

    def install_on_the_system(self, packages: Iterable[str]) -> None:
        for package in packages:
            debian.bring(package, self._programs)

    def bring(self, program: Path) -> None:
        """Put a program of this machine on the path."""
        script = self._programs / program.name
        script.write_text(f'#!/bin/sh\nexec {program} "$@"\n')
        script.chmod(0o755)

    def run(self, page: Path) -> int:
        return self._page_run().run(page)

    def owner(self) -> "psycopg.Connection[Any]":
        return psycopg.connect(self.addresses.migration_url, autocommit=True)

    def servers(self) -> AbstractContextManager[None]:
        """`fencepost up`, for a page that has servers already."""
        return self._page_run().beside(UP, ["Fencepost is up: …"])

    def _page_run(self) -> PageRun:
        return PageRun(
            self.directory,
            self.variables,
            self.owner,
            self.install,
            self.install_on_the_system,
            self.instead,
            self.owners,
        )

    @property
    def addresses(self) -> ServerAddresses:
        addresses = read_note(self.directory / ".fencepost")
        assert addresses is not None, "no servers run here"
        return addresses


@pytest.fixture
def newcomer(wheels: Wheels, tmp_path: Path) -> Newcomer:
    return Newcomer(wheels, tmp_path)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", CASES)
def test_the_page_works_as_printed(name: str, newcomer: Newcomer) -> None:
    with ExitStack() as stack:
        if name in BROUGHT:
            brought = DOCS.parent / BROUGHT[name]
            shutil.copytree(brought, newcomer.directory / brought.name)
        newcomer.pins = not name.startswith("how-to/migrate-from")
        if name in OTHER_SERVERS:
            # The old server has the tables of every service.
            newcomer.install(["fencepost[binary,cli,redis]", *PROJECTS])
            OTHER_SERVERS[name](newcomer, stack)
        elif not starts_servers(DOCS / name):
            newcomer.install(["fencepost[embedded]"])
            stack.enter_context(newcomer.servers())
            addresses = newcomer.addresses
            newcomer.variables |= {
                "DATABASE_URL": addresses.service_url,
                "MIGRATION_DATABASE_URL": addresses.migration_url,
                "REDIS_URL": addresses.redis_url or "",
                "PROCRASTINATE_URL": addresses.migration_url,
                "CELERY_BROKER": celery_broker(addresses),
            }
            newcomer.instead = {
                "postgresql://owner@shop.example-writer:5432/shop": f"'{addresses.migration_url}'",
                "postgresql://app:secret@shop.example-writer:5432/shop?": f"{addresses.service_url}&",
            }
        assert newcomer.run(DOCS / name) >= PAGES[name]


def an_old_and_a_new_server(newcomer: Newcomer, stack: ExitStack) -> None:
    both = stack.enter_context(two_versions())
    newcomer.bring(both.psql)
    newcomer.owners, newcomer.instead = both.owners, both.instead


def a_primary_and_its_standby(newcomer: Newcomer, stack: ExitStack) -> None:
    """What the Services of a cluster lead to, before and after its primary is lost."""
    pair = stack.enter_context(replicas())
    pair.require_standby(required=True)
    newcomer.variables |= {
        "DATABASE_URL": f"{pair.database.url}&target_session_attrs=read-write&connect_timeout=2",
        "STANDBY_DATABASE_URL": pair.successor.url,
    }
    newcomer.instead = {"kubectl exec deploy/fencepost-api -- ": ""}


OTHER_SERVERS: dict[str, Callable[[Newcomer, ExitStack], None]] = {
    "how-to/upgrade-postgresql.md": an_old_and_a_new_server,
    "how-to/failover-cloudnativepg.md": a_primary_and_its_standby,
}
"""Pages whose servers `fencepost up` does not start."""


def celery_broker(addresses: ServerAddresses) -> str:
    """Celery has a form of its own for the socket of a Redis."""
    return f"redis+socket://{unquote(urlsplit(addresses.redis_url or '').path)}?virtual_host=0"


def starts_servers(page: Path) -> bool:
    return any(
        command.startswith(UP) or command.endswith(" --up")
        for block in blocks(page)
        if block.language == "console"
        for command, _ in block.commands()
    )


def test_every_how_to_runs_or_says_why_not() -> None:
    pages = {f"how-to/{page.name}" for page in (DOCS / "how-to").glob("*.md")}
    assert pages == {name for name in PAGES if name.startswith("how-to/")} | NOT_RUN.keys()


def test_the_blocks_that_are_left_out_are_named() -> None:
    found = {name: len(left_out(DOCS / name)) for name in PAGES}
    assert {name: count for name, count in found.items() if count} == LEFT_OUT


def test_the_library_alone_is_small(wheels: Wheels, tmp_path: Path) -> None:
    environment = EmptyEnvironment(tmp_path / "env")
    wheels.install(environment, ["fencepost"])

    assert list(wheels.directory.glob("fencepost-0*-py3-none-any.whl"))
    assert len(environment.packages) <= PACKAGES_MAX, environment.packages
    assert environment.megabytes <= MEGABYTES_MAX
    assert import_ms(environment, "fencepost", 5) <= IMPORT_MS_MAX
    where = subprocess.check_output(
        [environment.python, "-c", "import fencepost; print(fencepost.__file__)"],
        cwd=tmp_path,
        text=True,
        env={},
    )
    assert where.startswith(str(environment.home)), "nothing of this tree is imported"


def test_every_tutorial_starts_from_nothing() -> None:
    assert set(TUTORIALS) <= set(PAGES)
    assert all(starts_servers(DOCS / name) for name in TUTORIALS)
