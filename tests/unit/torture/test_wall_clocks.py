"""Which clocks can jump on this machine is seen by letting one jump."""

from pathlib import Path

import pytest

from fencepost_torture import _wall_clocks as wall_clocks
from fencepost_torture._wall_clocks import choose_clocks, put, works


def test_without_a_library_that_works_no_clock_jumps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "libfaketime.so.1"
    broken.write_text("not a library")
    monkeypatch.setattr(wall_clocks, "candidates", lambda: iter([tmp_path / "none.so", broken]))

    assert choose_clocks(["kill", "node-clock-jump", "postgres-clock-jump"]) == (None, ["kill"])


def test_no_caller_looks_for_it_where_no_clock_is_to_jump(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(_library: Path) -> bool:
        raise AssertionError("a process was started for nothing")

    monkeypatch.setattr(wall_clocks, "works", asked)

    assert choose_clocks(["kill", "clock-jump"]) == (None, ["kill", "clock-jump"])


def test_a_probe_that_hangs_is_no_library_that_works(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    library = tmp_path / "libfaketime.so.1"
    library.touch()
    monkeypatch.setattr(wall_clocks, "PROBE", "import time; time.sleep(60)")
    monkeypatch.setattr(wall_clocks, "PROBE_SECONDS", 0.1)

    assert not works(library)


def test_a_clock_is_replaced_whole(tmp_path: Path) -> None:
    clock = tmp_path / "clock-0"
    put(clock, 0)
    put(clock, -7200.25)

    assert clock.read_text() == "-7200.250\n"
    assert [path.name for path in tmp_path.iterdir()] == ["clock-0"]
