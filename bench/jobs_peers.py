"""The peers and their environments: each library alone, in the versions that were measured."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bench.environments import CannotInstall, EmptyEnvironment
from bench.report import DIRECTORY

Truth = Literal["PostgreSQL", "Redis", "its own"]
PEERS = Path(__file__).with_name("peers")
# The write of every handler uses the same driver.
DRIVER = "psycopg[binary,pool]==3.3.8"


@dataclass(frozen=True, slots=True)
class Peer:
    """A job library. Its `runner` in peers/ has its roles and its settings."""

    name: str
    truth: Truth
    packages: tuple[str, ...] = ()
    # Its worker runs in Node.js, with this package of npm. The other roles need only a driver.
    npm: str = ""
    # One elected worker looks for lost jobs. If that one is frozen, none does: another one must lead.
    has_leader: bool = False

    @property
    def title(self) -> str:
        """With its version, because figures belong to one."""
        _, _, version = next(iter((*self.packages, self.npm)), "").replace("@", "==").partition("==")
        return f"{self.name} {version}".strip()

    @property
    def is_ours(self) -> bool:
        """Whether it runs in this environment, on a database that is migrated."""
        return not (self.packages or self.npm)

    @property
    def runner(self) -> Path:
        return PEERS / f"run_{self.name}.py"


OURSELVES = Peer("fencepost", "PostgreSQL")
# Without Redis: for a team that runs nothing but PostgreSQL.
ALONE = Peer("fencepost_alone", "PostgreSQL")
STRANGERS = (
    Peer("procrastinate", "PostgreSQL", ("procrastinate==3.10.0",)),
    Peer("pgqueuer", "PostgreSQL", ("pgqueuer[asyncpg]==1.6.0",)),
    Peer("dbos", "PostgreSQL", ("dbos==3.3.0",)),
    Peer("absurd", "PostgreSQL", ("absurd-sdk==0.5.1", "absurdctl==0.5.1")),
    Peer("awa", "PostgreSQL", ("awa-pg==0.6.9",), has_leader=True),
    Peer("graphile_worker", "PostgreSQL", npm="graphile-worker@0.18.0"),
    Peer("celery", "Redis", ("celery[redis]==5.7.0",)),
    Peer("dramatiq", "Redis", ("dramatiq[redis]==2.2.1",)),
    Peer("arq", "Redis", ("arq==0.28.0",)),
    Peer("saq", "Redis", ("saq[redis,hiredis]==0.26.4",)),
    Peer("taskiq", "Redis", ("taskiq-redis==1.2.4", "taskiq==0.13.0")),
    Peer("streaq", "Redis", ("streaq==7.2.0",)),
)


class CannotTakePart(Exception):
    """A peer that cannot be installed or run here; the report says why."""


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment with one peer and only its dependencies."""

    peer: Peer
    directory: Path = DIRECTORY / "env"

    @property
    def python(self) -> Path:
        if self.peer.is_ours:
            return Path(sys.executable)
        # Absolute, but not resolved: the link inside the environment is what selects it.
        return (self._home / "bin" / "python").absolute()

    @property
    def ready(self) -> bool:
        """Whether it exists, in these versions."""
        return self.peer.is_ours or (self._note.exists() and self._note.read_text() == self._wanted)

    def make(self) -> None:
        """Create it, unless it is ready."""
        if self.ready:
            return
        try:
            environment = EmptyEnvironment(self._home)
            environment.install([DRIVER, *self.peer.packages], offline_first=False)
            if self.peer.npm:
                environment.install_for_node(self.peer.npm)
        except CannotInstall as error:
            raise CannotTakePart(str(error)) from error
        self._note.write_text(self._wanted)

    @property
    def _home(self) -> Path:
        return self.directory / self.peer.name

    @property
    def _note(self) -> Path:
        return self._home / "ready.txt"

    @property
    def _wanted(self) -> str:
        return "\n".join((DRIVER, *self.peer.packages, *filter(None, [self.peer.npm])))


def ready_ones(peers: Iterable[Peer]) -> list[Peer]:
    """The peers whose environment exists already."""
    return [peer for peer in peers if Environment(peer).ready]
