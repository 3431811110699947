"""Every registered benchmark can be run by its name."""

import inspect
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from bench import __main__ as command
from bench.catalogue import NAMES, benchmark
from bench.report import Goal, Report


@pytest.mark.parametrize("name", NAMES)
def test_a_registered_benchmark_takes_quick_by_keyword(name: str) -> None:
    assert inspect.signature(benchmark(name)).parameters["quick"].kind is inspect.Parameter.KEYWORD_ONLY


def test_a_missed_goal_is_no_error_of_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def slow(*, quick: bool) -> Report:
        return Report("kernel", quick, rows=[], goals=[Goal("rate", 1, 2)], machine={})

    def only_slow(_: str) -> Callable[..., Report]:
        return slow

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "benchmark", only_slow)

    assert command.main(["kernel", "--quick"]) == 0

    kept = json.loads((tmp_path / ".fencepost/bench/kernel.json").read_text())
    assert kept["quick"] is True
    assert kept["goals"][0]["met"] is False


def test_an_unknown_benchmark_is_refused_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        command.main(["nothing"])

    assert "kernel" in capsys.readouterr().err
