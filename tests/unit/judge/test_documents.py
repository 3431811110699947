"""A package's YAML is read by a process of its own, which dies alone of what it cannot hold."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fencepost.errors import InvalidInput
from fencepost_judge._store import Store
from fencepost_judge.packages import _documents as documents
from fencepost_judge.packages import _yaml_child as yaml_child
from fencepost_judge.packages._documents import parse_here, parse_in_child
from fencepost_judge.packages._reading import read_problem
from tests.unit.judge.test_packages import LEGACY, write
from tests.unit.test_strict_yaml import alias_bomb, merge_bomb

MIB = 1 << 20


@pytest.mark.parametrize("name", ["problem.yaml", "data/testdata.yaml", "data/secret/testdata.yaml"])
@pytest.mark.parametrize("bomb", [alias_bomb, merge_bomb])
def test_a_package_with_a_bomb_is_refused_by_the_files_name(
    tmp_path: Path, name: str, bomb: Callable[[int], str]
) -> None:
    # Of three levels: the usual loader would take it, and what it stands for grows ninefold with each.
    place = write(tmp_path / "p", LEGACY | {name: bomb(3)})

    with pytest.raises(InvalidInput, match=rf"{name} is refused: line 1: an anchor"):
        read_problem(place, Store(tmp_path / "store"))


def test_the_process_answers_what_reading_here_answers() -> None:
    texts = {"a": "x: [1, 2.5, null, true, 2026-10-03]\n7: seven\n", "b": ""}

    assert parse_in_child(texts) == parse_here(texts)
    assert parse_here(texts)["a"] == {"x": [1, 2.5, None, True, "2026-10-03"], "7": "seven"}


def costly(monkeypatch: pytest.MonkeyPatch, folder: Path, body: str) -> None:
    """Another process in the place of ours, with the same bounds."""
    (folder / "costly.py").write_text(
        f"import sys\nfrom {yaml_child.__name__} import bound\n"
        f"bound(int(sys.argv[1]), int(sys.argv[2]))\n{body}\n"
    )
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {folder}/costly.py "$4" "$5"\n')
    python.chmod(0o755)
    monkeypatch.setattr(documents, "PYTHON", str(python))


@pytest.mark.parametrize(
    ("body", "why", "wall_seconds"),
    [
        ("x = []\nwhile True: x.append(bytearray(1 << 20))", "processor time or memory", 60.0),
        ("while True: pass", "processor time or memory", 60.0),
        ("import signal; signal.pause()", "took more than", 1.0),
    ],
    ids=["memory", "processor", "time"],
)
def test_what_costs_too_much_ends_that_process_and_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, why: str, wall_seconds: float
) -> None:
    costly(monkeypatch, tmp_path, body)

    with pytest.raises(InvalidInput, match=why):
        parse_in_child(
            {"problem.yaml": "a: 1"}, cpu_seconds=1, wall_seconds=wall_seconds, memory_bytes=256 * MIB
        )


def test_a_process_that_has_bounded_itself_writes_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    costly(monkeypatch, tmp_path, f"open({str(tmp_path / 'left')!r}, 'w').write('x' * 10)")

    with pytest.raises(InvalidInput):
        parse_in_child({"problem.yaml": "a: 1"})
    assert (tmp_path / "left").stat().st_size == 0


def test_too_much_yaml_is_refused_before_it_is_read(tmp_path: Path) -> None:
    lines = "# nothing\n" * 100_000
    many = {f"data/secret/{number}.yaml": lines for number in range(10)}

    with pytest.raises(InvalidInput, match="bytes of YAML"):
        read_problem(write(tmp_path / "p", LEGACY | many), Store(tmp_path / "store"))
    with pytest.raises(InvalidInput, match="too large"):
        read_problem(write(tmp_path / "q", LEGACY | {"problem.yaml": lines * 2}), Store(tmp_path / "store"))
