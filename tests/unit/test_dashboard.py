"""The dashboard: a row for each system, and every query about metrics that are exported."""

import json
import re
import shutil
import subprocess
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.test_metric_names import collected, declarations

BOARD = Path(__file__).parents[2] / "deploy" / "grafana" / "fencepost.json"
PANELS: list[dict[str, Any]] = json.loads(BOARD.read_text())["panels"]
ROWS = [panel for panel in PANELS if panel["type"] == "row"]
QUERIES = [
    pytest.param(target["expr"], id=f"{panel['title']} {target['refId']}")
    for panel in PANELS
    for target in panel.get("targets", ())
]


def exported() -> set[str]:
    return {*declarations(), *collected()}


def test_there_is_a_row_for_each_system_and_a_query_on_every_panel() -> None:
    assert [row["title"] for row in ROWS] == ["The whole", "Outbox", "Jobs", "Workflows", "Judge", "Flows"]
    assert all(panel["targets"] for panel in PANELS if panel["type"] != "row")
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_names_an_exported_metric_and_labels_that_it_has(query: str) -> None:
    names = set(re.findall(r"\bfencepost_[a-z_]+", query))
    assert names
    for name in names:
        plain = re.sub(r"_(bucket|count|sum)$", "", name)
        assert name in exported() or plain in exported(), name
        if plain in declarations():
            asked = set(re.findall(r"(\w+)\s*(?:=~|!=|=|!~)\s*\"", query))
            asked |= {
                label.strip() for group in re.findall(r"by \(([^)]*)\)", query) for label in group.split(",")
            }
            assert asked <= {*declarations()[plain].labels, "le", "instance"}, query


def test_no_two_panels_overlap() -> None:
    def overlap(one: dict[str, int], other: dict[str, int]) -> bool:
        return (
            one["x"] < other["x"] + other["w"]
            and other["x"] < one["x"] + one["w"]
            and one["y"] < other["y"] + other["h"]
            and other["y"] < one["y"] + one["h"]
        )

    for one, other in combinations(PANELS, 2):
        assert not overlap(one["gridPos"], other["gridPos"]), (
            f"{one['title']}, {other['title']} lie on one place"
        )


def test_prometheus_understands_every_query(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    rules = [{"record": f"query:{place}", "expr": one.values[0]} for place, one in enumerate(QUERIES)]
    (tmp_path / "queries.yml").write_text(yaml.safe_dump({"groups": [{"name": "board", "rules": rules}]}))
    done = subprocess.run(
        [promtool, "check", "rules", tmp_path / "queries.yml"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
