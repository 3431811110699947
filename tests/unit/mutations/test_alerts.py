"""Alerts speak of metrics that exist, and each has a page for whoever it wakes."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from fencepost.metrics import Metrics
from fencepost.mutations.metrics import MutationMetrics

ROOT = Path(__file__).parents[3]
RULES = ROOT / "deploy" / "prometheus" / "players.yml"


def rules() -> list[dict[str, Any]]:
    document = yaml.safe_load(RULES.read_text())
    return [rule for group in document["groups"] for rule in group["rules"]]


def test_every_alert_has_a_runbook_that_begins_with_its_name() -> None:
    pages = {f"docs/runbooks/{page.name}" for page in (ROOT / "docs" / "runbooks").glob("players-*.md")}
    assert pages == {rule["annotations"]["runbook"] for rule in rules()}
    for rule in rules():
        page = ROOT / rule["annotations"]["runbook"]
        assert page.read_text().startswith(f"# {rule['alert']}\n"), page


def test_every_alert_asks_for_a_metric_that_is_counted() -> None:
    metrics = Metrics()
    MutationMetrics.on(metrics)
    names = {f"{family.name}{end}" for family in metrics.registry.collect() for end in ("", "_total")}
    for rule in rules():
        asked = set(re.findall(r"mutation_\w+", rule["expr"]))
        assert asked, rule
        assert asked <= names, asked - names


def test_promtool_accepts_the_rules_and_they_fire_when_they_should() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    for command in (["check", "rules", RULES.name], ["test", "rules", "players_test.yml"]):
        ended = subprocess.run(
            [promtool, *command], cwd=RULES.parent, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
