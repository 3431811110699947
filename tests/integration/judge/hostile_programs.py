"""The hostile programs: which there are, how they are compiled, and what each must get."""

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).parent / "hostile"
_CASE = re.compile(r"^(CASE|CALL|READS|WRITES|SOCKET|DIES)\((\w+)", re.MULTILINE)
_PREFIXES = {
    "CASE": "",
    "CALL": "call_",
    "READS": "read_",
    "WRITES": "write_",
    "SOCKET": "socket_",
    "DIES": "dies_",
}


@dataclass(frozen=True)
class Expected:
    verdict: str
    # -1 when the run may end by more than one signal.
    signal: int


def names() -> list[str]:
    """From the sources, so that pytest can count the cases without a compiler."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(SOURCES.glob("*.c"))]
    return [_PREFIXES[kind] + name for text in texts for kind, name in _CASE.findall(text)]


def compile_zoo(target: Path) -> None:
    compiler = shutil.which("cc") or "cc"
    sources = [str(path) for path in sorted(SOURCES.glob("*.c"))]
    subprocess.run([compiler, "-O1", "-w", "-o", str(target), *sources, "-lpthread"], check=True)


def expectations(program: Path) -> dict[str, Expected]:
    listing = subprocess.run([str(program), "--list"], check=True, capture_output=True, text=True).stdout
    rows = (line.split() for line in listing.splitlines())
    return {name: Expected(verdict, int(signal)) for name, verdict, signal in rows}
