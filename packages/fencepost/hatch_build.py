"""Puts the documentation's site, if it was built, into the wheel as one archive, for `fencepost docs`."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PLACE = "fencepost/cli/documentation.zip"
EPOCH = (1980, 1, 1, 0, 0, 0)
"""The time of every entry: the same site makes the same wheel."""


class IncludeTheSite(BuildHookInterface[Any]):
    """`make docs` builds the site, and `make release` does so before it builds the wheels."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        site = Path(self.root).parents[1] / "dist/docs" / self.metadata.version
        if self.target_name != "wheel" or version == "editable" or not (site / "index.html").is_file():
            return
        archive = Path(self.directory) / "documentation.zip"
        archive.parent.mkdir(parents=True, exist_ok=True)
        pack(site, archive)
        build_data["force_include"][str(archive)] = PLACE
        self._archive = archive

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if PLACE in build_data["force_include"].values():
            self._archive.unlink()


def pack(site: Path, archive: Path) -> None:
    """Every file of the folder, in the order of their names."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
        for path in sorted(path for path in site.rglob("*") if path.is_file()):
            entry = zipfile.ZipInfo(path.relative_to(site).as_posix(), EPOCH)
            packed.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)
