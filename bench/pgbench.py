"""pgbench, the reference: what the server can do when the client costs nothing."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fencepost.embedded import Database

_RATE = re.compile(r"^tps = ([\d.]+) \(without initial connection time\)$", re.MULTILINE)
_DONE = re.compile(r"^number of transactions actually processed: (\d+)/(\d+)$", re.MULTILINE)


class PgbenchError(Exception):
    """pgbench ended early, or its output cannot be parsed."""


@dataclass(frozen=True, slots=True)
class Pgbench:
    """The pgbench of the server's own installation, on one of its databases."""

    database: Database

    def rate(self, script: Path, *, connections: int, calls: int, variables: Mapping[str, int]) -> float:
        """Scripts a second over all connections, each running it `calls` times."""
        program = self.database.server.binary.beside("pgbench")
        given = [part for name, value in variables.items() for part in ("-D", f"{name}={value}")]
        options = [
            "-n",
            "-M",
            "prepared",
            "-c",
            str(connections),
            "-j",
            str(min(connections, os.cpu_count() or 1)),
        ]
        ended = subprocess.run(
            [program, *options, "-t", str(calls), "-f", script, *given, self.database.url],
            capture_output=True,
            text=True,
            check=False,
        )
        return read_rate(ended.returncode, ended.stdout, ended.stderr)


def read_rate(code: int, output: str, user_error: str) -> float:
    """The rate that pgbench printed, if it did all of its work."""
    rate, done = _RATE.search(output), _DONE.search(output)
    if code != 0 or rate is None or done is None or done[1] != done[2]:
        raise PgbenchError(f"pgbench ended with {code}:\n{user_error}\n{output}")
    return float(rate[1])
