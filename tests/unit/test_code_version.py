"""A figure names the code that it is of."""

import subprocess
from pathlib import Path

import pytest

from fencepost import _code_version as module
from fencepost._code_version import revision


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "src"
    folder.mkdir()
    (folder / "code.py").write_text("1\n")
    (tmp_path / "result.json").write_text("{}\n")
    monkeypatch.setattr(module, "HERE", folder)
    return folder


def test_a_result_that_changed_does_not_make_the_code_another(package: Path) -> None:
    git(package.parent, "init")
    git(package.parent, "add", ".")
    git(package.parent, "commit", "-m", "first")
    (package.parent / "result.json").write_text('{"effects": 1}\n')

    clean = revision()

    assert len(clean) >= 7
    assert not clean.endswith("+")
    (package / "code.py").write_text("2\n")
    assert revision() == f"{clean}+"


def test_what_lies_in_no_repository_is_unknown(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(package.parent.parent))

    assert revision() == "unknown"
    monkeypatch.setenv("PATH", "")
    assert revision() == "unknown"
