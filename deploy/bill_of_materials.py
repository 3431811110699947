"""What we are made of, as CycloneDX, read from the lock file: `python deploy/bill_of_materials.py FILE`.

It needs no network: names, versions and hashes are all in requirements.lock.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PINNED = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)")
HASH = re.compile(r"--hash=sha256:(?P<hash>[0-9a-f]{64})")


def bill_of(lock: str, version: str) -> dict[str, Any]:
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "library", "name": "fencepost", "version": version}},
        "components": list(_components(lock)),
    }


def _components(lock: str) -> Iterator[dict[str, Any]]:
    """A requirement begins at the left margin; what is indented below belongs to it."""
    for block in re.split(r"\n(?=\S)", lock):
        found = PINNED.match(block)
        if found is not None:
            name = found["name"].lower()
            yield {
                "type": "library",
                "name": name,
                "version": found["version"],
                "purl": f"pkg:pypi/{name}@{found['version']}",
                # One for each file of the release; which of them is installed depends on the machine.
                "hashes": [{"alg": "SHA-256", "content": content} for content in HASH.findall(block)],
            }


def _version() -> str:
    project = tomllib.loads((ROOT / "packages/fencepost/pyproject.toml").read_text())["project"]
    return str(project["version"])


def main(target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    bill = bill_of((ROOT / "requirements.lock").read_text(), _version())
    target.write_text(json.dumps(bill, indent=2) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
