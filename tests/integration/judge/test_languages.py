"""Definitions of languages: each compiles and runs here, and its verdicts are right."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost.errors import InvalidInput
from fencepost_judge import _language as language
from fencepost_judge._language import find_languages, read_folder, read_spec, read_specs
from fencepost_judge._language_check import EXPECTED, open_language_checks
from fencepost_judge._settings import JudgeSettings
from fencepost_judge.sandbox._run_spec import Limits
from tests.integration.judge.judge_env import Command

SHELL = """
name: shell
title: Shell
source: main.shell
extensions: [.shell]
programs:
  sh: {names: [sh]}
version: ["{sh}", -c, echo 1]
run: ["{sh}", "/app/{entry}"]
runs_from: source
needs: toolchain
time_factor: 2
tests:
  echo: |
    read line; echo "$line"
  loop: |
    while :; do :; done
  memory: |
    all=x; while :; do all=$all$all; done
  crash: |
    exit 3
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of one's own."""
    folder = tmp_path / "languages"
    folder.mkdir()
    (folder / "shell.yaml").write_text(SHELL)
    monkeypatch.setenv("JUDGE_LANGUAGES_DIR", str(folder))
    read_specs.cache_clear()
    yield folder
    read_specs.cache_clear()


def test_there_are_more_than_twenty_and_each_brings_its_tests() -> None:
    specs = read_folder(Path(language.__file__).parent / "languages")

    assert len(specs) >= 20
    assert [spec.name for spec in specs if spec.tests is None] == []
    extensions = [one for spec in specs for one in spec.extensions]
    assert len(set(extensions)) == len(extensions), "a file has one language"


# With every compiler there, on a busy machine.
@pytest.mark.timeout(900)
async def test_what_is_installed_compiles_and_runs(tmp_path: Path) -> None:
    got = await verdicts(tmp_path, {"echo"})

    assert {name: found for name, found in got.items() if found != {"echo": "AC"}} == {}


@pytest.mark.full
@pytest.mark.timeout(1800)
async def test_the_programs_of_every_language_get_the_verdicts_that_they_should(tmp_path: Path) -> None:
    missing = [spec.title for spec in read_specs() if spec.name not in find_languages([spec])]
    got = await verdicts(tmp_path, set(EXPECTED))

    assert {name: found for name, found in got.items() if found != EXPECTED} == {}
    if missing:
        pytest.skip(f"The others are right; not installed here: {', '.join(missing)}")


async def verdicts(tmp_path: Path, names: set[str]) -> dict[str, dict[str, str]]:
    """Of the test programs of every language that is installed."""
    found = find_languages()
    settings = JudgeSettings(workspace=tmp_path / "workspace", slots=2)
    async with open_language_checks(settings, found) as checks:
        return {
            name: {got.name: got.verdict for got in await checks.check(one.spec, names)}
            for name, one in found.items()
        }


def test_a_definition_of_ones_own_is_tested_by_a_command(own: Path, judge: Command) -> None:
    code, said = judge("languages", "shell", "--test")
    broken = own / "broken.yaml"
    broken.write_text(SHELL.replace("exit 3", "exit 0").replace("name: shell", "name: broken"))
    other, told = judge("languages", str(broken), "--test")

    assert (code, said.count("ok  ")) == (0, 4), said
    assert other == 1
    assert "FAIL crash: WA" in told


def test_a_definition_that_is_wrong_is_named() -> None:
    with pytest.raises(InvalidInput, match=r"bad\.yaml.*time_factor"):
        read_spec("bad.yaml", SHELL.replace("time_factor: 2", "time_factor: 0.5"))


def test_a_language_has_its_own_time(own: Path) -> None:
    (spec,) = read_folder(own)
    found = find_languages([spec])["shell"]
    limits = Limits(cpu_ms=1000, wall_ms=4000, memory_kb=65_536, output_kb=64)
    order = found.run_order("app", "main.shell", limits)

    assert (order.limits.cpu_ms, order.limits.wall_ms) == (2000, 8000)
