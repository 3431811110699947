"""A real MariaDB for a test, from the system's packages: on a socket in a folder of its own."""

import importlib
import os
import shutil
import socket
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.server_process import hired_server

SERVER = shutil.which("mariadbd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
INSTALL = shutil.which("mariadb-install-db")
MISSING = "MariaDB or its driver is not installed: the system's package mariadb-server and PyMySQL have them"


def driver() -> Any:
    """PyMySQL, or None."""
    try:
        return importlib.import_module("pymysql")
    except ModuleNotFoundError:
        return None


def is_here() -> bool:
    return SERVER is not None and INSTALL is not None and driver() is not None


@dataclass(frozen=True)
class MariaDb:
    process: subprocess.Popen[bytes]
    socket: str

    def arguments(self, database: str = "shop") -> dict[str, str]:
        """What a driver connects with."""
        return {"unix_socket": self.socket, "user": "root", "database": database, "charset": "utf8mb4"}

    def is_up(self) -> bool:
        # The driver leaves a socket open that it could not connect.
        with socket.socket(socket.AF_UNIX) as tried:
            return tried.connect_ex(self.socket) == 0

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def mariadb_server(folder: Path) -> Generator[MariaDb]:
    """Its database `shop` is empty."""
    with hired_server(folder, _launch) as server:
        connection = driver().connect(unix_socket=server.socket, user="root")
        with connection.cursor() as cursor:
            cursor.execute("create database shop")
        connection.close()
        yield server


def _launch(place: Path) -> MariaDb:
    assert SERVER is not None
    assert INSTALL is not None
    data = place / "data"
    account = [] if os.getuid() else ["--user=root"]
    common = ["--no-defaults", f"--datadir={data}", *account]
    with (place / "log").open("wb") as log:
        subprocess.run(
            [INSTALL, *common, "--auth-root-authentication-method=normal", "--skip-test-db"],
            check=True,
            stdout=log,
            stderr=log,
        )
        process = subprocess.Popen(
            [
                SERVER,
                *common,
                "--skip-networking",
                f"--socket={place / 's'}",
                f"--pid-file={place / 'pid'}",
                "--innodb-buffer-pool-size=16M",
                "--innodb-log-file-size=8M",
                "--innodb-flush-log-at-trx-commit=0",
                "--innodb-lock-wait-timeout=20",
            ],
            stdout=log,
            stderr=log,
        )
    return MariaDb(process, str(place / "s"))
