"""The YAML files of a package as values, parsed in a separate process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from fencepost.errors import InvalidInput
from fencepost.logs import get_logger
from fencepost.strict_yaml import BYTES_MAX
from fencepost_judge.packages import _yaml_child as yaml_child

_log = get_logger(__name__)
PYTHON = sys.executable
TEXT_BYTES_MAX = 8 << 20
CPU_SECONDS = 20
WALL_SECONDS = 60.0
MEMORY_BYTES = 1 << 30
Parse = Callable[[Mapping[str, str]], Mapping[str, Any]]
"""Maps names with texts to names with values. Raises InvalidInput naming the file."""


def parse_in_child(
    texts: Mapping[str, str],
    *,
    cpu_seconds: int = CPU_SECONDS,
    wall_seconds: float = WALL_SECONDS,
    memory_bytes: int = MEMORY_BYTES,
) -> Mapping[str, Any]:
    """Parse with limits on processor time, memory and wall time; texts that exceed them are refused, and
    affect nothing else."""
    size = sum(len(text.encode("utf-8", "surrogatepass")) for text in texts.values())
    if size > TEXT_BYTES_MAX:
        raise InvalidInput(
            f"The package has {size} bytes of YAML; at most {TEXT_BYTES_MAX} are read.", field="package"
        )
    if not texts:
        return {}
    command = [PYTHON, "-I", "-m", yaml_child.__name__, str(cpu_seconds), str(memory_bytes)]
    try:
        done = subprocess.run(
            command, input=json.dumps(texts).encode(), capture_output=True, timeout=wall_seconds, check=False
        )
    except subprocess.TimeoutExpired:
        raise _too_costly(texts, f"took more than {wall_seconds:g} s") from None
    if done.returncode != 0:
        why = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or [""]
        _log.warning("judge_package_yaml_child_died", code=done.returncode, error=why[0][:200])
        raise _too_costly(texts, "took more processor time or memory than is allowed")
    try:
        return _answer(json.loads(done.stdout))
    except json.JSONDecodeError:
        raise _too_costly(texts, "gave no answer") from None


def parse_here(texts: Mapping[str, str]) -> Mapping[str, Any]:
    """The same in this process, for Fencepost's own files and for tests that read thousands of packages."""
    return _answer(yaml_child.parsed(texts))


def mapping(name: str, document: Any) -> dict[str, Any]:
    """A document that holds keys and values, or nothing."""
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise InvalidInput(f"{name} must be a mapping of keys to values.", field=name)
    return cast("dict[str, Any]", document)


def _answer(said: Mapping[str, Any]) -> Mapping[str, Any]:
    if "refused" in said:
        name = str(said["refused"])
        raise InvalidInput(f"{name} is refused: {said['why']}.", field=name.rpartition("/")[2])
    return cast("Mapping[str, Any]", said["documents"])


def _too_costly(texts: Mapping[str, str], what: str) -> InvalidInput:
    named = next(iter(texts)) if len(texts) == 1 else "the package's YAML"
    return InvalidInput(f"Reading {named} {what}. Nothing was imported.", field="package")


class Documents:
    """The YAML files of one package, by their paths. Loaded in batches: each load starts a process."""

    def __init__(self, root: Path, parse: Parse) -> None:
        self._root = root
        self._parse = parse
        self._found: dict[Path, Any] = {}

    def load(self, paths: Iterable[Path], change: Callable[[str], str] = str) -> None:
        """Load those paths that are files; `change` is applied to each text before it is parsed."""
        texts: dict[str, str] = {}
        for path in paths:
            if path.is_file():
                texts[str(path.relative_to(self._root))] = change(_text(path))
        parsed = self._parse(texts)
        self._found |= {self._root / name: value for name, value in parsed.items()}

    def get(self, path: Path) -> dict[str, Any]:
        """Keys and values; empty when there is no such file."""
        return mapping(path.name, self._found.get(path))


def _text(path: Path) -> str:
    if path.stat().st_size > BYTES_MAX:
        raise InvalidInput(f"{path.name} is too large: at most {BYTES_MAX} bytes are read.", field=path.name)
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidInput(f"{path.name} is not UTF-8 text.", field=path.name) from None
