"""What stands in deploy/: it can be read, it names what exists, and its rules fire when they should."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
ENVIRONMENT = re.compile(r"\b(?:DATABASE|CONSOLE|HTTP|REDIS|METRICS|LOG|MIGRATION)_[A-Z_]+\b")


def declared() -> str:
    return "\n".join(path.read_text() for path in (ROOT / "packages").rglob("*.py"))


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
    # Reached by whoever watches in that network, and by nobody outside of it.
    assert services["worker"]["environment"]["METRICS_ADDRESS"] == "0.0.0.0"  # noqa: S104 - Compared.
    assert "ports" not in services["worker"]
    for name in ("api", "worker"):
        assert "/readyz" in services[name]["healthcheck"]["test"][-1], name


OTLP = ("environment[0].name=OTEL_EXPORTER_OTLP_ENDPOINT", "environment[0].value=http://c:4318")


def named(environment: list[dict[str, Any]]) -> list[tuple[str, str | None]]:
    return [(one["name"], one.get("value")) for one in environment]


@pytest.fixture(scope="module")
def helm() -> str:
    beside = Path(sys.executable).with_name("helm")
    found = str(beside) if beside.exists() else shutil.which("helm")
    if found is None:
        pytest.skip("helm is not installed, and its wheel is for Linux on x86-64 only")
    return found


def templated(helm: str, *settings: str) -> list[dict[str, Any]]:
    options = [option for setting in settings for option in ("--set", setting)]
    done = subprocess.run(
        [helm, "template", "x", str(DEPLOY / "chart"), *options], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def test_helm_finds_nothing_to_say_about_the_chart(helm: str) -> None:
    done = subprocess.run(
        [helm, "lint", "--strict", str(DEPLOY / "chart"), "--set", "worker.application=shop"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "[ERROR]" not in done.stdout
    assert "[WARNING]" not in done.stdout


@pytest.mark.parametrize("version", ["1.27", "1.34"])
def test_kubernetes_knows_every_field_of_the_chart(helm: str, version: str) -> None:
    """By the schemas of Kubernetes itself, the oldest that the chart promises and a new one; what they do not
    know is an error."""
    made = templated(helm, "worker.application=shop", *OTLP)
    kinds = [document["kind"] for document in made]
    assert kinds == [
        "PodDisruptionBudget",
        "Service",
        "Deployment",
        "Deployment",
        "HorizontalPodAutoscaler",
        "Job",
    ]
    containers = [
        one["spec"]["template"]["spec"]["containers"][0] for one in made if "template" in one["spec"]
    ]
    assert all(("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318") in named(one["env"]) for one in containers)
    for document in made:
        kubernetes_validate.validate(document, version, strict=True)
    made[0]["spec"]["maxUnavailabel"] = 1
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(made[0], version, strict=True)


def test_workers_follow_the_backlog_and_are_watched_where_the_operator_is(helm: str) -> None:
    made = {
        (document["kind"], document["metadata"]["name"]): document
        for document in templated(helm, "worker.application=shop", "podMonitor.enabled=true")
    }
    scaling = made["HorizontalPodAutoscaler", "x-worker"]["spec"]
    assert scaling["scaleTargetRef"]["name"] == "x-worker"
    assert scaling["metrics"][0]["external"]["metric"]["name"] == "fencepost_jobs_waiting"
    assert "replicas" not in made["Deployment", "x-worker"]["spec"], "or each upgrade would undo the scaling"
    assert ("PodMonitor", "x-worker") in made
    [watched] = made["PodMonitor", "x-api"]["spec"]["podMetricsEndpoints"]
    assert watched["authorization"]["credentials"] == {"name": "fencepost", "key": "http-token"}
    for name in ("x-api", "x-worker"):
        [container] = made["Deployment", name]["spec"]["template"]["spec"]["containers"]
        probes = [container[probe]["httpGet"]["path"] for probe in ("livenessProbe", "readinessProbe")]
        assert probes == ["/healthz", "/readyz"], name
        monitored = made["PodMonitor", name]["spec"]["podMetricsEndpoints"][0]["port"]
        assert monitored in {port["name"] for port in container["ports"]}
    fixed = templated(helm, "worker.application=shop", "worker.autoscaling.enabled=false")
    assert [one["spec"].get("replicas") for one in fixed if one["kind"] == "Deployment"] == [2, 1]
    assert {one["metadata"]["name"] for one in templated(helm)} == {"x-api", "x-migrate"}, (
        "no workers of nothing"
    )


def test_the_compose_file_is_one() -> None:
    """By the schema of the compose specification, as check-jsonschema brings it: Docker need not be here."""
    checker = Path(sys.executable).with_name("check-jsonschema")
    done = subprocess.run(
        [checker, "--builtin-schema", "vendor.compose-spec", str(DEPLOY / "compose" / "compose.yaml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_variable_of_the_compose_file_is_in_the_example() -> None:
    wanted = set(re.findall(r"\$\{(\w+)", (DEPLOY / "compose" / "compose.yaml").read_text()))
    given = set(re.findall(r"^(\w+)=", (DEPLOY / "compose" / "env.example").read_text(), re.MULTILINE))
    assert wanted == given
