"""What a contestant is not shown: secret data, and of a conversation even the sample."""

from pathlib import Path

import pytest

from fencepost.embedded import Database
from fencepost.judge.role import Role
from tests.integration.judge.office import open_office

SAMPLE, SECRET = "1357924680", "8642097531"


def package(folder: Path, *, interactive: bool) -> Path:
    kind = "type: interactive\n" if interactive else ""
    files = {
        "problem.yaml": f"problem_format_version: 2023-07\nname: Guess\nlimits: {{time_limit: 1}}\n{kind}",
        "statement/problem.en.md": "Guess the number.",
        "output_validator/guess.py": "raise SystemExit(42)\n",
    }
    for place, number in (("sample", SAMPLE), ("secret", SECRET)):
        files |= {f"data/{place}/1.in": f"{number}\n", f"data/{place}/1.ans": f"{number}\n"}
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.mark.parametrize("interactive", [False, True])
async def test_a_problem_shows_its_samples_unless_they_are_what_the_validator_knows(
    database: Database, tmp_path: Path, interactive: bool
) -> None:
    async with open_office(database, tmp_path) as office:
        await office.add("con", Role.CONTESTANT)
        await office.judging.import_problem(package(tmp_path / "guess", interactive=interactive))
        told = (await office.ask("con", "GET", "/problems/guess")).text
        async with office.browser("con") as browser:
            page = (await browser.get("/court/problems/guess")).text

    assert "Guess the number." in told
    assert "Guess the number." in page
    assert SECRET not in told + page
    assert [SAMPLE in told, SAMPLE in page] == [not interactive] * 2
