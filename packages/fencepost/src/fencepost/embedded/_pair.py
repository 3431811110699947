"""A PostgreSQL and a Valkey in one directory: all servers that a Fencepost system needs."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

from fencepost.embedded._database import Database
from fencepost.embedded._postgres import PostgresServer
from fencepost.embedded._valkey import ValkeyServer
from fencepost.private_folder import make_private, tighten

DATABASE = "fencepost"


class Pair:
    """Both servers, started and stopped together, with the database `fencepost` inside.

    The migrations run on `admin_url`; `create_logins` then makes the roles behind the other two.
    """

    def __init__(
        self,
        directory: Path,
        *,
        settings: Mapping[str, str | int] | None = None,
        append_only: bool = False,
        ephemeral: bool = False,
    ) -> None:
        self._directory = directory
        self.postgres = PostgresServer(directory / "postgres", settings=settings, ephemeral=ephemeral)
        self.valkey = ValkeyServer(directory / "valkey", append_only=append_only, ephemeral=ephemeral)
        self.database = Database(self.postgres, DATABASE)

    @property
    def admin_url(self) -> str:
        """PostgreSQL as the superuser, who owns the schema."""
        return self.database.admin_url

    @property
    def service_url(self) -> str:
        """PostgreSQL as the application role."""
        return self.database.url

    @property
    def viewer_url(self) -> str:
        """PostgreSQL as the role that only reads."""
        return self.database.viewer_url

    @property
    def redis_url(self) -> str:
        """The URL of Valkey."""
        return self.valkey.url

    def start(self) -> Self:
        """Start both at once. If one fails, the other is stopped."""
        make_private(self._directory)
        if (self._directory / "postgres").exists():
            # The directory is ours, and not another one that a setting names by mistake.
            tighten(self._directory)
        try:
            _both(self._start_postgres, self.valkey.start)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop both servers."""
        _both(self.postgres.stop, self.valkey.stop)

    def create_logins(self) -> None:
        """Create the login roles; call it after the migrations; safe to call again."""
        self.database.create_logins()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _start_postgres(self) -> None:
        self.postgres.start()
        if not self.database.exists():
            self.database.create()


def _both(first: Callable[[], object], second: Callable[[], object]) -> None:
    """Run both concurrently to their ends; then raise the exception of the first that failed."""
    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(first), pool.submit(second)]
    for future in futures:
        future.result()
