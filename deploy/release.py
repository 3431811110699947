"""`make release`: everything that a release publishes, in dist/release, and nothing sent anywhere.

    python deploy/release.py [--tag vX.Y.Z] [--check]

First the checks: one version in every distribution and in every pin between them, a changelog that knows it,
a tag that names it. Then the files: the documentation's site, alone and inside the library's wheel; a
wheel for each distribution, with a tag that the index accepts; a bill of materials; the release notes; the
digest of each file. `--check` only checks.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PURE = "py3-none-any"
NATIVE = re.compile(r"py3-none-manylinux2014_\w+\.musllinux_1_1_\w+")
HEADING = re.compile(r"^## (?P<title>.+)$", re.MULTILINE)


def projects(root: Path = ROOT) -> dict[str, Mapping[str, Any]]:
    """Each distribution's name and its table `project`."""
    read = (
        tomllib.loads(path.read_text())["project"] for path in sorted(root.glob("packages/*/pyproject.toml"))
    )
    return {project["name"]: project for project in read}


def faults(found: Mapping[str, Mapping[str, Any]], changelog: str, tag: str | None = None) -> list[str]:
    """What keeps these distributions from being one release."""
    version = found["fencepost"]["version"]
    wrong = [
        f"{name} has version {one['version']}, fencepost {version}"
        for name, one in found.items()
        if one["version"] != version
    ]
    for name, one in found.items():
        groups = [one.get("dependencies", []), *one.get("optional-dependencies", {}).values()]
        for pin in (pin for group in groups for pin in group):
            other = re.split(r"[\[=<>~! ]", pin, maxsplit=1)[0]
            if other in found and other != name and not pin.endswith(f"=={version}"):
                wrong.append(f"{name} requires {pin}, which is not =={version}")
    titles = [heading["title"] for heading in HEADING.finditer(changelog)]
    if not any(version in title for title in titles):
        wrong.append(f"CHANGELOG.md has no heading with {version}: it has {', '.join(titles) or 'none'}")
    if tag is not None and tag != f"v{version}":
        wrong.append(f"The tag {tag} is not v{version}")
    if tag is not None and any("unreleased" in title.lower() and version in title for title in titles):
        wrong.append(f"CHANGELOG.md still calls {version} unreleased")
    return wrong


def notes(changelog: str, version: str) -> str:
    """The section of this version."""
    headings = list(HEADING.finditer(changelog))
    for place, heading in enumerate(headings):
        if version in heading["title"]:
            end = headings[place + 1].start() if place + 1 < len(headings) else len(changelog)
            return f"# Fencepost {version}\n\n{changelog[heading.end() : end].strip()}\n"
    raise SystemExit(f"CHANGELOG.md has no heading with {version}.")


def refused_wheels(names: Iterable[str]) -> list[str]:
    """Wheels that the index would not accept, or that are for more or fewer machines than they run on."""
    wrong: list[str] = []
    for name in names:
        tag = "-".join(name.removesuffix(".whl").split("-")[2:])
        is_right = NATIVE.fullmatch(tag) if name.startswith("fencepost_judge-") else tag == PURE
        if not is_right:
            wrong.append(name)
    return wrong


def build(place: Path, version: str) -> None:
    """Make the files, empty place first."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    # Before the wheels: the library's wheel contains the site that it finds.
    subprocess.run([sys.executable, "-m", "docs.site"], cwd=ROOT, check=True)
    uv = shutil.which("uv") or str(ROOT / ".venv/bin/uv")
    # The same commit makes the same wheels.
    environment = {**os.environ, "SOURCE_DATE_EPOCH": _committed()}
    for project in sorted((ROOT / "packages").iterdir()):
        subprocess.run(
            [uv, "build", "--quiet", "--wheel", "--out-dir", place, project], check=True, env=environment
        )
    (place / ".gitignore").unlink(missing_ok=True)
    if wrong := refused_wheels(path.name for path in place.glob("*.whl")):
        raise SystemExit(f"Not for the index: {', '.join(wrong)}. The judge's wheel needs a C compiler.")
    subprocess.run([sys.executable, ROOT / "deploy/bill_of_materials.py", place / "sbom.json"], check=True)
    (place / "NOTES.md").write_text(notes((ROOT / "CHANGELOG.md").read_text(), version))
    with tarfile.open(place / f"fencepost-docs-{version}.tar.gz", "w:gz") as archive:
        archive.add(ROOT / "dist/docs" / version, f"fencepost-docs-{version}")
    digests = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}" for path in sorted(place.iterdir())
    ]
    (place / "SHA256SUMS").write_text("\n".join(digests) + "\n")


def _committed() -> str:
    asked = subprocess.run(
        ["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return asked.stdout.strip() or "315532800"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tag", help="the tag that is released")
    parser.add_argument("--check", action="store_true", help="only the checks")
    parser.add_argument("--place", type=Path, default=ROOT / "dist/release")
    asked = parser.parse_args(arguments)
    found = projects()
    version: str = found["fencepost"]["version"]
    if wrong := faults(found, (ROOT / "CHANGELOG.md").read_text(), asked.tag or None):
        raise SystemExit("\n".join(wrong))
    if not asked.check:
        build(asked.place, version)
        sys.stdout.write(f"Fencepost {version} is in {asked.place}; nothing was sent.\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
