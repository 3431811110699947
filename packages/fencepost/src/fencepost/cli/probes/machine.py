"""What the probes read from a machine, as an interface. Tests substitute their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


class Machine(Protocol):
    def which(self, program: str) -> Path | None:
        """The path of a program, or None."""
        ...

    def output(self, *command: str | Path) -> str | None:
        """A command's output, or None when it cannot be run, fails, or takes too long."""
        ...

    def text(self, path: str) -> str | None:
        """A file's text, or None."""
        ...

    def writable(self, path: str) -> bool:
        """Whether this process may write there."""
        ...


@dataclass(frozen=True, slots=True)
class ThisMachine:
    """The local machine. Programs beside the Python interpreter are found before those on PATH."""

    seconds: float = 10.0

    def which(self, program: str) -> Path | None:
        """The program's path, found beside this Python first, then on PATH."""
        places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        found = shutil.which(program, path=places)
        return Path(found) if found else None

    def output(self, *command: str | Path) -> str | None:
        """What the command printed, or None if it failed or is missing."""
        try:
            done = subprocess.run(
                command,
                check=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=self.seconds,
            )
        except (OSError, subprocess.SubprocessError):
            return None
        return done.stdout.decode(errors="replace").strip()

    def text(self, path: str) -> str | None:
        """The file's text, or None if it cannot be read."""
        try:
            return Path(path).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None

    def writable(self, path: str) -> bool:
        """Whether this process may write there."""
        return os.access(path, os.W_OK)
