"""A release has one version, which the changelog knows, and wheels that the index accepts."""

import runpy
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
RELEASE: Any = SimpleNamespace(**runpy.run_path(str(ROOT / "deploy/release.py")))
CHANGELOG = "# Changelog\n\n## 1.1.0 (unreleased)\n\n- new\n\n## 1.0.0\n\n- first\n"
ONE: dict[str, dict[str, Any]] = {
    "fencepost": {"version": "1.1.0"},
    "fencepost-orders": {"version": "1.1.0", "dependencies": ["fencepost[cli]==1.1.0", "x>=2"]},
}


def test_this_tree_can_be_released() -> None:
    assert RELEASE.main(["--check"]) == 0


def test_one_version_everywhere_has_no_fault() -> None:
    assert RELEASE.faults(ONE, CHANGELOG) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": "1.0.9"}, "fencepost-orders has version 1.0.9, fencepost 1.1.0"),
        (
            {"dependencies": ["fencepost>=1.1.0"]},
            "fencepost-orders requires fencepost>=1.1.0, which is not ==1.1.0",
        ),
        (
            {"optional-dependencies": {"all": ["fencepost[cli]==1.0.0"]}},
            "fencepost-orders requires fencepost[cli]==1.0.0, which is not ==1.1.0",
        ),
    ],
)
def test_another_version_is_a_fault(change: dict[str, Any], said: str) -> None:
    found = {**ONE, "fencepost-orders": {**ONE["fencepost-orders"], **change}}

    assert RELEASE.faults(found, CHANGELOG) == [said]


def test_a_version_that_the_changelog_does_not_know_is_a_fault() -> None:
    assert RELEASE.faults(ONE, "# Changelog\n\n## 1.0.0\n") == [
        "CHANGELOG.md has no heading with 1.1.0: it has 1.0.0"
    ]


def test_a_tag_names_the_version_and_a_changelog_that_is_finished() -> None:
    assert RELEASE.faults(ONE, CHANGELOG, "v1.0.0")[0] == "The tag v1.0.0 is not v1.1.0"
    assert RELEASE.faults(ONE, CHANGELOG, "v1.1.0") == ["CHANGELOG.md still calls 1.1.0 unreleased"]
    assert RELEASE.faults(ONE, CHANGELOG.replace(" (unreleased)", ""), "v1.1.0") == []


def test_the_notes_are_the_section_of_the_version() -> None:
    assert RELEASE.notes(CHANGELOG, "1.1.0") == "# Fencepost 1.1.0\n\n- new\n"
    assert RELEASE.notes(CHANGELOG, "1.0.0") == "# Fencepost 1.0.0\n\n- first\n"


def test_only_the_judge_is_for_one_kind_of_machine_and_for_every_linux_on_it() -> None:
    pure = "fencepost-1.1.0-py3-none-any.whl"
    judge = "fencepost_judge-1.1.0-py3-none-manylinux2014_x86_64.musllinux_1_1_x86_64.whl"
    plain = "fencepost_judge-1.1.0-py3-none-linux_x86_64.whl"
    without = "fencepost_judge-1.1.0-py3-none-any.whl"

    assert RELEASE.refused_wheels([pure, judge, plain, without]) == [plain, without]


@pytest.mark.parametrize("name", ["ci", "release"])
def test_a_workflow_of_the_forge_is_valid_and_calls_targets_that_exist(name: str) -> None:
    path = ROOT / ".github/workflows" / f"{name}.yml"
    targets = {
        line.partition(":")[0] for line in (ROOT / "Makefile").read_text().splitlines() if ": " in line
    }
    called = [
        word for line in path.read_text().splitlines() if "run: make " in line for word in [line.split()[3]]
    ]

    assert called
    assert set(called) <= targets
    check = [
        sys.executable,
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        "vendor.github-workflows",
        str(path),
    ]
    run = subprocess.run(check, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.full
@pytest.mark.timeout(900)
def test_a_dry_run_makes_every_file_with_its_digest(tmp_path: Path) -> None:
    assert RELEASE.main(["--place", str(tmp_path / "release")]) == 0

    made = {path.name for path in (tmp_path / "release").iterdir()}
    assert len([name for name in made if name.endswith(".whl")]) == len(RELEASE.projects())
    assert {"sbom.json", "NOTES.md", "SHA256SUMS"} <= made
    with zipfile.ZipFile(next((tmp_path / "release").glob("fencepost-0*.whl"))) as wheel:
        assert "fencepost/cli/documentation.zip" in wheel.namelist()
    sums = subprocess.run(
        ["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=tmp_path / "release", check=False
    )
    assert sums.returncode == 0
