"""Alerts speak of metrics that exist, and each has a page for whoever it wakes."""

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from fencepost.metrics import Metrics
from fencepost.retention import RetentionMetrics
from fencepost_nonces._metrics import NonceMetrics
from fencepost_orders._metrics import OrderMetrics
from fencepost_players.mutations.metrics import MutationMetrics

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "prometheus"


def _count_players(metrics: Metrics) -> None:
    MutationMetrics.on(metrics)
    RetentionMetrics.on(metrics)


COUNTED: dict[str, tuple[Callable[[Metrics], object], str]] = {
    "nonces": (NonceMetrics.on, r"fencepost_nonces_\w+"),
    "orders": (OrderMetrics.on, r"fencepost_orders\w*"),
    "players": (_count_players, r"fencepost_(?:mutations|idempotency|retention)_\w+"),
}
"""For each file of rules: who counts, and what his metrics are called."""
EACH = pytest.mark.parametrize("service", COUNTED)


def rules(service: str) -> list[dict[str, Any]]:
    document = yaml.safe_load((RULES / f"{service}.yml").read_text())
    return [rule for group in document["groups"] for rule in group["rules"]]


@EACH
def test_every_alert_has_a_runbook_that_begins_with_its_name(service: str) -> None:
    for rule in rules(service):
        page = ROOT / rule["annotations"]["runbook"]
        assert page.read_text().startswith(f"# {rule['alert']}\n"), page


@EACH
def test_every_runbook_belongs_to_an_alert(service: str) -> None:
    pages = {f"docs/runbooks/{page.name}" for page in (ROOT / "docs" / "runbooks").glob(f"{service}-*.md")}
    assert pages == {rule["annotations"]["runbook"] for rule in rules(service)}


@EACH
def test_every_alert_asks_for_a_metric_that_is_counted(service: str) -> None:
    count, named = COUNTED[service]
    metrics = Metrics()
    count(metrics)
    names = {
        f"{family.name}{end}"
        for family in metrics.registry.collect()
        for end in ("", "_total", "_bucket", "_count", "_sum")
    }
    for rule in rules(service):
        asked = set(re.findall(named, rule["expr"]))
        assert asked, rule
        assert asked <= names, asked - names


@EACH
def test_promtool_accepts_the_rules_and_they_fire_when_they_should(service: str) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    for command in (["check", "rules", f"{service}.yml"], ["test", "rules", f"{service}_test.yml"]):
        ended = subprocess.run([promtool, *command], cwd=RULES, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stdout + ended.stderr
