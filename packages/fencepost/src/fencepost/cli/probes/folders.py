"""Probes data directories: only their owner may open them."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from pathlib import Path

from fencepost.cli.findings import Finding, FindingState
from fencepost.private_folder import is_open

AREA = "files"


def probe_folders(folders: Mapping[str, Path | None]) -> list[Finding]:
    """One finding per existing directory. A missing one is skipped: it is created private."""
    return [
        _probe(name, folder) for name, folder in folders.items() if folder is not None and folder.is_dir()
    ]


def _probe(name: str, folder: Path) -> Finding:
    mode = f"{stat.S_IMODE(folder.stat().st_mode):04o}"
    if is_open(folder):
        detail = f"{folder} is {mode}: other accounts of this machine may open it"
        return Finding(AREA, name, FindingState.LACKING, detail, f"chmod 700 {folder}", required=True)
    return Finding(AREA, name, FindingState.OK, f"{folder} is {mode}", required=True)
