"""What stands in deploy/: it can be read, it names what exists, and its rules fire when they should."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
METRIC = re.compile(r"\bfencepost_[a-z_]+")
SUFFIXES = ("_total", "_bucket", "_count", "_sum")
ENVIRONMENT = re.compile(r"\b(?:DATABASE|CONSOLE|HTTP|REDIS|METRICS|LOG|MIGRATION)_[A-Z_]+\b")


def declared() -> str:
    return "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))


def without_suffix(name: str) -> str:
    return next((name.removesuffix(one) for one in SUFFIXES if name.endswith(one)), name)


@pytest.mark.parametrize("file", ["prometheus/fencepost.yml", "grafana/fencepost.json"])
def test_every_metric_that_is_watched_exists(file: str) -> None:
    text, source = (DEPLOY / file).read_text(), declared()
    names = {without_suffix(name) for name in METRIC.findall(text)}
    assert len(names) >= 5
    assert {name for name in names if f'"{name}"' not in source} == set()


def test_the_dashboard_has_a_query_on_every_panel_and_no_two_on_one_place() -> None:
    panels: list[dict[str, Any]] = json.loads((DEPLOY / "grafana/fencepost.json").read_text())["panels"]
    assert all(target["expr"] for panel in panels for target in panel["targets"])
    assert len({(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}) == len(panels)


@pytest.mark.parametrize(
    "file", ["compose/compose.yaml", "chart/templates/api.yaml", "chart/templates/worker.yaml"]
)
def test_every_variable_that_is_set_is_read(file: str) -> None:
    names = set(ENVIRONMENT.findall((DEPLOY / file).read_text()))
    assert {name for name in names if f'"{name}"' not in declared()} == set()


def test_the_compose_file_waits_for_what_it_needs_and_gives_the_owners_login_to_the_migration_alone() -> None:
    services: dict[str, Any] = yaml.safe_load((DEPLOY / "compose/compose.yaml").read_text())["services"]
    for service in services.values():
        assert set(service.get("depends_on", {})) <= set(services)
    assert [n for n, s in services.items() if "MIGRATION_DATABASE_URL" in s.get("environment", {})] == [
        "migrate"
    ]
    assert services["api"]["ports"] == ["127.0.0.1:8080:8080"]


def test_promtool_accepts_the_rules_and_they_fire_when_they_should() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    for command in (["check", "rules", "fencepost.yml"], ["test", "rules", "fencepost_test.yml"]):
        done = subprocess.run(
            [promtool, *command], cwd=DEPLOY / "prometheus", capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_helm_accepts_the_chart() -> None:
    helm = shutil.which("helm")
    if helm is None:
        pytest.skip("helm is not installed")
    done = subprocess.run(
        [helm, "template", "x", str(DEPLOY / "chart"), "--set", "worker.application=shop"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert all(yaml.safe_load_all(done.stdout))
