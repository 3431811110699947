"""What was reached is told as it stands in the files of the runs, and they add up."""

import json

import pytest

from fencepost_torture._goals import GOALS
from fencepost_torture._report import read_score
from tests.unit.torture.results_table import DOCS, PAGE, table


@pytest.mark.parametrize("name", GOALS)
def test_the_file_of_a_goal_adds_up(name: str) -> None:
    path = DOCS / "results" / f"{name}.json"

    assert read_score(name, path).facts() == json.loads(path.read_text())


def test_the_page_tells_what_the_files_say() -> None:
    assert table() in PAGE.read_text(), "write it with `python -m tests.unit.torture.results_table`"
