"""Finding and making the compiled sandbox."""

import shutil
from pathlib import Path

import pytest

from fencepost.cli.findings import FindingState
from fencepost.cli.probes.machine import ThisMachine
from fencepost_judge._workspace import Workspace, sweep
from fencepost_judge.sandbox import _box_binary as box_binary
from fencepost_judge.sandbox._doctor_probe import probe_box
from fencepost_judge.sandbox._probing import Report, probe_machine


@pytest.fixture
def nothing_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(box_binary, "PACKAGED", tmp_path / "none")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.usefixtures("nothing_compiled", "no_compiler")
def test_without_a_compiler_the_judge_says_so() -> None:
    report = probe_machine()
    finding = probe_box(ThisMachine())

    assert not report.ready
    assert "no C compiler" in report.error
    assert finding.state is FindingState.LACKING
    assert "gcc" in (finding.remedy or "")


@pytest.mark.usefixtures("nothing_compiled")
def test_a_program_of_other_sources_has_another_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = box_binary.file_name()
    sources = tmp_path / "box"
    sources.mkdir()
    (sources / "main.c").write_text("int main(void){return 0;}\n")
    monkeypatch.setattr(box_binary, "SOURCES", sources)

    assert box_binary.file_name() != before
    assert box_binary.compiled() is None


@pytest.mark.skipif(shutil.which("cc") is None, reason="the boxes need a C compiler: install gcc")
def test_the_program_has_no_c_library_to_wait_for() -> None:
    """Its start asks the processor about its caches: in a virtual machine that took a sixth of a run."""
    compiled = box_binary.find().read_bytes()

    assert b"/ld-" not in compiled
    assert b"GLIBC_TUNABLES" not in compiled


def test_what_is_degraded_is_said() -> None:
    facts = {
        "cgroup": "none",
        "user_namespace": False,
        "proc": False,
        "root": False,
        "processes_seen": False,
        "kernel": "5.10.0-28-amd64",
    }
    text = "\n".join(Report(ready=True, facts=facts).lines())
    newer = Report(ready=True, facts={**facts, "processes_seen": True, "kernel": "6.1.0-13-amd64"}).lines()
    grouped = Report(ready=True, facts={**facts, "cgroup": "v2"}).lines()

    assert text.count("Degraded:") == 5
    assert "without privileges" in text
    assert "\n".join(newer).count("Degraded:") == 3
    assert "\n".join(grouped).count("Degraded:") == 2


def test_the_folder_of_a_judge_that_is_gone_is_swept_and_that_of_a_living_one_is_not(tmp_path: Path) -> None:
    with Workspace(tmp_path) as workspace:
        gone = tmp_path / "judge-1-123456789-abcd"
        (gone / "apps").mkdir(parents=True)
        (gone / "apps/link").symlink_to("/etc")
        sweep(tmp_path)

        assert not gone.exists()
        assert workspace.folder.exists()
        assert Path("/etc/passwd").exists()
    assert list(tmp_path.iterdir()) == []


def test_a_source_is_written_into_its_folder_whatever_its_name(tmp_path: Path) -> None:
    with Workspace(tmp_path) as workspace:
        folder = workspace.write_sources({"../../evil.c": b"1"})

        assert [path.name for path in folder.iterdir()] == ["evil.c"]
