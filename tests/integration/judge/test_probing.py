"""Looking what the sandbox can do here makes nothing that would stay where a kill meets it."""

import shutil
import tempfile
from pathlib import Path

import pytest

from fencepost_judge.sandbox._probing import probe_machine

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="the boxes need a C compiler: install gcc")


def test_a_probe_needs_no_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))

    assert probe_machine().ready
