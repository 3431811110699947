"""What stands in deploy/: it names what exists, and gives each role what it needs and no more."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import jsonschema  # type: ignore[import-untyped]
import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml
from psycopg.conninfo import conninfo_to_dict

from fencepost.flows._settings import FlowSettings
from fencepost.jobs.settings import JobSettings
from fencepost.layered_settings import From, readers
from fencepost_judge.sandbox._doctor_probe import PROGRAMS
from tests.command_line import check_options, parse
from tests.deployment import (
    COMPOSE,
    DEPLOY,
    GIVEN,
    ROOT,
    WHOLE_CHART,
    by_name,
    compose_services,
    containers,
    find_helm,
    image_targets,
    ours,
    rendered,
)
from tests.integration.client.page import blocks
from tests.unit.test_metric_names import declarations

PACKAGES = ROOT / "packages"
TARGETS = image_targets()
ROLES = ("serve", "worker", "judge", "flows")
SERVICES = compose_services()
OURS = ours(SERVICES)
OTLP = ("environment[0].name=OTEL_EXPORTER_OTLP_ENDPOINT", "environment[0].value=http://c:4318")
NOT_ROOT = 10001
RULES = DEPLOY / "prometheus"
CLOUDNATIVEPG = "github.com/cloudnative-pg/cloudnative-pg@v1.25.1"


def known_variables() -> set[str]:
    """Every variable that a class of settings reads."""
    found: set[str] = set()
    for reference in readers():
        module, _, name = reference.partition(":")
        for one in getattr(import_module(module), name).model_fields.values():
            found |= {source.env for source in one.metadata if isinstance(source, From)}
    return found


def environment_of(container: Mapping[str, Any]) -> dict[str, str | None]:
    return {one["name"]: one.get("value") for one in container["env"]}


# PostgreSQL.


def test_the_cluster_for_the_chart_is_synchronous_and_its_page_names_its_services() -> None:
    document = yaml.safe_load((DEPLOY / "ha" / "cloudnativepg.yaml").read_text())
    assert (document["apiVersion"], document["kind"]) == ("postgresql.cnpg.io/v1", "Cluster")
    synchronous = document["spec"]["postgresql"]["synchronous"]
    assert synchronous == {"method": "any", "number": 1, "dataDurability": "required"}
    assert document["spec"]["instances"] > synchronous["number"] + 1, "one may be lost"
    page = (ROOT / "docs" / "how-to" / "failover-cloudnativepg.md").read_text()
    name, made = document["metadata"]["name"], document["spec"]["bootstrap"]["initdb"]
    assert f"{made['owner']}:secret@{name}-rw:5432/{made['database']}" in page
    for service in ("rw", "ro", "r"):
        assert f"`{name}-{service}`" in page


def test_the_addresses_on_its_page_are_the_secret_that_the_chart_reads() -> None:
    page = ROOT / "docs" / "how-to" / "failover-cloudnativepg.md"
    (given,) = (yaml.safe_load(block.body) for block in blocks(page) if block.language == "yaml")
    kubernetes_validate.validate(given, "1.30", strict=True)
    assert (
        given["metadata"]["name"]
        == yaml.safe_load((DEPLOY / "chart" / "values.yaml").read_text())["secretName"]
    )
    templates = "".join(file.read_text() for file in (DEPLOY / "chart" / "templates").iterdir())
    read = set(re.findall(r"secretKeyRef: \{name: [^,]+, key: ([\w-]+)\}", templates))
    assert given["stringData"].keys() == read
    for name in ("database-url", "migration-database-url", "read-database-url"):
        assert conninfo_to_dict(given["stringData"][name])["dbname"] == "fencepost"


@pytest.mark.full
def test_cloudnativepg_knows_every_field_of_its_cluster(tmp_path: Path) -> None:
    """By its own schema, of the oldest version that the page promises. What the schema does not know is an
    error."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("go is not installed, which brings the schema")
    done = subprocess.run(
        [go, "mod", "download", "-json", CLOUDNATIVEPG],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    if done.returncode:
        pytest.skip(f"go cannot bring the schema: {done.stdout[-200:]}")
    crd = (
        Path(json.loads(done.stdout)["Dir"]) / "config" / "crd" / "bases" / "postgresql.cnpg.io_clusters.yaml"
    )
    (version,) = yaml.safe_load(crd.read_text())["spec"]["versions"]
    schema = closed(version["schema"]["openAPIV3Schema"])
    schema["properties"]["metadata"] = {"type": "object"}  # That of Kubernetes.
    cluster = yaml.safe_load((DEPLOY / "ha" / "cloudnativepg.yaml").read_text())

    jsonschema.validate(cluster, schema)

    cluster["spec"]["postgresql"]["synchronous"]["dataDurabilty"] = "required"
    with pytest.raises(jsonschema.ValidationError, match="dataDurabilty"):
        jsonschema.validate(cluster, schema)


def closed(schema: Any) -> Any:
    """The same schema, in which a field that it does not name is an error."""
    if isinstance(schema, list):
        return [closed(each) for each in cast("Sequence[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    whole = {name: closed(each) for name, each in cast("Mapping[str, Any]", schema).items()}
    is_open = "additionalProperties" in whole or "x-kubernetes-preserve-unknown-fields" in whole
    return whole if is_open or "properties" not in whole else {**whole, "additionalProperties": False}


# The images.


def test_each_role_has_an_image_that_runs_it_and_not_as_root() -> None:
    assert list(TARGETS)[-1] == "serve", "what a build without a target makes"
    for role in ROLES:
        target = TARGETS[role]
        assert target.all("ENTRYPOINT") == ['["fencepost"]']
        assert target.all("USER")[-1] == str(NOT_ROOT)
        parse(target.command)
    assert {role: TARGETS[role].command[0] for role in ROLES} == {
        "serve": "serve",
        "worker": "worker",
        "judge": "judge",
        "flows": "flows",
    }


def test_each_image_has_the_packages_of_its_role_and_all_of_them_are_built() -> None:
    everything = {path.name for path in PACKAGES.iterdir()} - {"fencepost-torture"}
    built = TARGETS["build"].installed
    assert set(built) == everything
    basic = {"binary", "cli", "metrics", "redis", "traces"}
    assert TARGETS["worker"].installed == {"fencepost": basic}
    assert TARGETS["flows"].installed == {"fencepost": {*basic, "bucket", "kafka", "parquet"}}
    assert TARGETS["judge"].installed == {"fencepost": basic, "fencepost-judge": set()}
    assert set(TARGETS["serve"].installed) == everything
    for target in TARGETS.values():
        for name, extras in target.installed.items():
            project = tomllib.loads((PACKAGES / name / "pyproject.toml").read_text())["project"]
            assert extras <= set(project.get("optional-dependencies", {})), name
            assert extras <= built[name], "a wheel that was not built cannot be installed"


def test_the_judges_image_has_the_compiler_of_every_language() -> None:
    reference = (ROOT / "docs/reference/judge.md").read_text()
    table = reference.partition("| language | its compiler in Debian |")[2].partition("\n\n")[0]
    told = {*re.findall(r"`([^`]+)`", table)} - {"python3"}
    probed = {
        one.install.removeprefix("Debian: ")
        for one in PROGRAMS
        if one.area == "compilers" and one.name != "python"
    }
    assert probed <= told
    assert TARGETS["judge"].debian_packages == told
    assert TARGETS["build"].parent is None, (
        "the whole image of Python, which has a C compiler for the sandbox"
    )


@pytest.mark.full
def test_debian_has_every_package_of_the_images() -> None:
    if shutil.which("apt-cache") is None:
        pytest.skip("apt-cache is not here: not a Debian")
    inline = yaml.safe_load(COMPOSE.read_text())["services"]["etcd"]["build"]["dockerfile_inline"]
    assert "install --yes --no-install-recommends etcd-server &&" in inline
    for package in {*TARGETS["judge"].debian_packages, "etcd-server"}:
        done = subprocess.run(["apt-cache", "show", package], capture_output=True, check=False)
        assert done.returncode == 0, package


# Compose.


def test_the_compose_file_is_one() -> None:
    """By the schema of the compose specification, as check-jsonschema brings it: Docker need not be here."""
    checker = Path(sys.executable).with_name("check-jsonschema")
    done = subprocess.run(
        [checker, "--builtin-schema", "vendor.compose-spec", str(COMPOSE)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_variable_of_the_compose_file_is_in_the_example() -> None:
    wanted = {name for name, _ in GIVEN.findall(COMPOSE.read_text())}
    given = set(re.findall(r"^(\w+)=", (DEPLOY / "compose" / "env.example").read_text(), re.MULTILINE))
    assert wanted == given


def test_compose_has_every_role_with_its_image() -> None:
    assert {name: (one["build"]["target"], one["command"][0]) for name, one in OURS.items()} == {
        "migrate": ("serve", "migrate"),
        "api": ("serve", "serve"),
        "sender": ("serve", "run"),
        "worker": ("worker", "worker"),
        "flows": ("flows", "flows"),
        "judge": ("judge", "judge"),
    }
    assert set(SERVICES) - set(OURS) == {"postgres", "valkey", "store", "etcd", "logins", "prometheus"}


@pytest.mark.parametrize("name", OURS)
def test_every_command_of_compose_exists_and_every_variable_is_a_setting(name: str) -> None:
    parse(OURS[name]["command"])
    assert set(OURS[name]["environment"]) <= known_variables()


def test_compose_waits_for_what_it_needs_and_gives_the_owners_login_to_the_migration_alone() -> None:
    for service in SERVICES.values():
        assert set(service.get("depends_on", {})) <= set(SERVICES)
    with_owner = {name for name, service in SERVICES.items() if "the-owner-password" in str(service)}
    assert with_owner == {"postgres", "migrate", "logins"}
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert published == {"api": ["127.0.0.1:8080:8080"], "prometheus": ["127.0.0.1:9090:9090"]}
    for name in set(OURS) - {"migrate"}:
        assert "/readyz" in OURS[name]["healthcheck"]["test"][-1], name


def test_compose_confines_every_process_and_the_judge_reaches_no_other_network() -> None:
    document = yaml.safe_load(COMPOSE.read_text())
    assert document["networks"]["inner"] == {"internal": True}
    assert SERVICES["judge"]["networks"] == ["inner"]
    for name, service in OURS.items():
        assert (service["cap_drop"], service["read_only"]) == (["ALL"], True), name
        assert "no-new-privileges:true" in service["security_opt"], name
        assert "privileged" not in service
        assert ("seccomp=unconfined" in service["security_opt"]) == (name == "judge")
        assert not any(place.startswith("/app") for place in service["tmpfs"]), (
            "it would hide the application"
        )
    scratch = [place for place in SERVICES["judge"]["tmpfs"] if "/tmp:" in place]  # noqa: S108 - Compared.
    assert "exec" in scratch[0].partition(":")[2].split(","), "programs run from it"


def test_the_grace_of_a_stop_is_above_the_drain() -> None:
    seconds = {"30s": 30, "1m": 60}
    assert seconds[SERVICES["worker"]["stop_grace_period"]] > JobSettings().drain_seconds
    assert seconds[SERVICES["flows"]["stop_grace_period"]] > FlowSettings().drain_seconds
    values = yaml.safe_load((DEPLOY / "chart" / "values.yaml").read_text())
    assert values["worker"]["terminationGracePeriodSeconds"] > JobSettings().drain_seconds
    assert values["flows"]["terminationGracePeriodSeconds"] > FlowSettings().drain_seconds


@pytest.mark.parametrize(("service", "program"), [("store", "weed mini -h"), ("etcd", "etcd --help")])
def test_a_server_beside_us_knows_its_options(service: str, program: str) -> None:
    """By the same program from its wheel; the whole servers run in the judge's tests."""
    words = program.split()
    words[0] = str(Path(sys.executable).with_name(words[0]))
    if not Path(words[0]).exists():
        pytest.skip(f"{words[0]} is not installed: its wheel is for Linux only")
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    options = [word for word in SERVICES[service]["command"] if word.startswith("-")]
    assert len(options) >= 3
    for option in options:
        name = re.escape(option.partition("=")[0].lstrip("-"))
        assert re.search(rf"^\s+-{{1,2}}{name}\b", done.stdout + done.stderr, re.MULTILINE), option


# Prometheus.


def test_prometheus_reads_every_process_and_evaluates_every_alert() -> None:
    config = yaml.safe_load((DEPLOY / "compose" / "prometheus.yml").read_text())
    rules = {path.name for path in RULES.glob("*.yml") if not path.stem.endswith("_test")}
    assert {Path(one).name for one in config["rule_files"]} == rules
    assert "../prometheus:/etc/prometheus/rules:ro" in SERVICES["prometheus"]["volumes"]
    read = {
        (name, one["port"])
        for job in config["scrape_configs"]
        for one in job["dns_sd_configs"]
        for name in one["names"]
    }
    wanted = {
        (name, int(one["environment"].get("METRICS_PORT") or one["environment"]["HTTP_PORT"]))
        for name, one in OURS.items()
        if name != "migrate"
    }
    assert read == wanted
    for name in {name for name, _ in read}:
        shared = set(SERVICES[name]["networks"]) & set(SERVICES["prometheus"]["networks"])
        assert shared, name


def test_promtool_accepts_the_configuration(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    (tmp_path / "rules").symlink_to(RULES)
    (tmp_path / "token").write_text("x")
    text = (DEPLOY / "compose" / "prometheus.yml").read_text()
    (tmp_path / "prometheus.yml").write_text(text.replace("/run/secrets/http-token", str(tmp_path / "token")))
    done = subprocess.run(
        [promtool, "check", "config", tmp_path / "prometheus.yml"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


# The chart.


@pytest.fixture(scope="module")
def helm() -> str:
    found = find_helm()
    if found is None:
        pytest.skip("helm is not installed, and its wheel is for Linux on x86-64 only")
    return found


@pytest.mark.parametrize("settings", [(), WHOLE_CHART, (*WHOLE_CHART, "judge.privileged=true")])
def test_helm_finds_nothing_to_say_about_the_chart(helm: str, settings: tuple[str, ...]) -> None:
    options = [option for setting in settings for option in ("--set", setting)]
    done = subprocess.run(
        [helm, "lint", "--strict", str(DEPLOY / "chart"), *options],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "[ERROR]" not in done.stdout
    assert "[WARNING]" not in done.stdout


@pytest.mark.parametrize("privileged", ["true", "false"])
@pytest.mark.parametrize("version", ["1.27", "1.30", "1.34"])
def test_kubernetes_knows_every_field_of_the_chart(helm: str, version: str, privileged: str) -> None:
    """By the schemas of Kubernetes itself, the oldest that the chart promises and a new one; what they do not
    know is an error."""
    settings = (*WHOLE_CHART, *OTLP, f"judge.privileged={privileged}")
    made = rendered(helm, *settings, version=f"{version}.0")
    for one in containers(made).values():
        assert ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318") in environment_of(one).items()
    for document in made:
        kubernetes_validate.validate(document, version, strict=True)
    broken = by_name(made)["PodDisruptionBudget", "x-api"]
    broken["spec"]["maxUnavailabel"] = 1
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, version, strict=True)


def test_the_chart_has_every_role_each_with_its_image_and_its_budget(helm: str) -> None:
    made = rendered(helm, *WHOLE_CHART)
    assert {name: (one["image"], one["args"]) for name, one in containers(made).items()} == {
        "x-api": ("fencepost-serve:0.1.0", ["serve"]),
        "x-sender": ("fencepost-serve:0.1.0", ["run", "orders", "nonces", "webhooks"]),
        "x-worker": ("fencepost-worker:0.1.0", ["worker", "shop.tasks"]),
        "x-judge": ("fencepost-judge:0.1.0", ["judge", "work"]),
        "x-flow-totals": ("fencepost-flows:0.1.0", ["flows", "run", "shop.streams:totals"]),
        "x-migrate": ("fencepost-serve:0.1.0", ["migrate"]),
    }
    found = by_name(made)
    deployed = {name for kind, name in found if kind == "Deployment"}
    assert deployed == {name for kind, name in found if kind == "PodDisruptionBudget"}
    assert deployed == {name for kind, name in found if kind == "NetworkPolicy"}
    for name in deployed:
        labels = found["Deployment", name]["spec"]["template"]["metadata"]["labels"]
        for kind, place in (("PodDisruptionBudget", "selector"), ("NetworkPolicy", "podSelector")):
            chosen = found[kind, name]["spec"][place]["matchLabels"]
            assert chosen.items() <= labels.items(), (kind, name)
            assert chosen["app.kubernetes.io/component"] == name.removeprefix("x-")
    bare = {name for kind, name in by_name(rendered(helm, "sender.roles=null")) if kind == "Deployment"}
    assert bare == {"x-api"}, "no workers of nothing"


def test_every_command_of_the_chart_exists_and_every_variable_is_a_setting(helm: str) -> None:
    settings = (*WHOLE_CHART, "worker.queues={mail,reports}", "judge.s3Endpoint=http://store:8333")
    made = containers(rendered(helm, *settings))
    for name, container in made.items():
        parse(container["args"])
        assert set(environment_of(container)) <= known_variables(), name
    assert made["x-worker"]["args"] == ["worker", "shop.tasks", "--queues", "mail,reports"]


def test_every_command_that_the_pages_print_exists() -> None:
    for page in (DEPLOY / "chart" / "README.md", ROOT / "docs" / "how-to" / "deploy.md"):
        text = page.read_text()
        for words in re.findall(r"^\$ .*(?:-- fencepost|run --rm \w+) (.+)$", text, re.MULTILINE):
            parse(words.split())
        named = [words.split() for words in re.findall(r"`fencepost ([^`]+)`", text)]
        assert len(named) >= 5
        for command in named:
            check_options(command)


def test_probes_ask_where_the_process_answers_and_metrics_are_read_there(helm: str) -> None:
    made = rendered(helm, *WHOLE_CHART, "podMonitor.enabled=true")
    found, watched = by_name(made), {one["metadata"]["name"] for one in made if one["kind"] == "PodMonitor"}
    for name, container in containers(made).items():
        if name == "x-migrate":
            continue
        probes = {
            probe: container[probe]["httpGet"]
            for probe in ("startupProbe", "livenessProbe", "readinessProbe")
        }
        assert [one["path"] for one in probes.values()] == ["/healthz", "/healthz", "/readyz"], name
        [port] = container["ports"]
        assert {one["port"] for one in probes.values()} == {port["name"]}
        environment = environment_of(container)
        assert str(port["containerPort"]) in (environment.get("METRICS_PORT"), environment.get("HTTP_PORT"))
        [endpoint] = found["PodMonitor", name]["spec"]["podMetricsEndpoints"]
        assert endpoint["port"] == port["name"]
        watched.discard(name)
    assert not watched
    [api] = found["PodMonitor", "x-api"]["spec"]["podMetricsEndpoints"]
    assert api["authorization"]["credentials"] == {"name": "fencepost", "key": "http-token"}


def test_workers_and_judges_follow_the_metric_that_they_export(helm: str) -> None:
    found = by_name(rendered(helm, *WHOLE_CHART))
    asked = {
        name: one["spec"]["metrics"][0]["external"]["metric"]
        for (kind, name), one in found.items()
        if kind == "HorizontalPodAutoscaler"
    }
    assert set(asked) == {"x-worker", "x-judge"}
    readme = (DEPLOY / "chart" / "README.md").read_text()
    for name, metric in asked.items():
        assert declarations()[metric["name"]].labels == ("queue",)
        assert metric["name"] in readme, "the rule of prometheus-adapter serves it"
        assert "replicas" not in found["Deployment", name]["spec"], "or each upgrade would undo the scaling"
    assert asked["x-judge"]["selector"]["matchExpressions"] == [
        {"key": "queue", "operator": "In", "values": ["judge"]}
    ]
    assert asked["x-worker"]["selector"]["matchExpressions"] == [
        {"key": "queue", "operator": "NotIn", "values": ["judge"]}
    ]
    chosen = by_name(rendered(helm, *WHOLE_CHART, "worker.queues={mail,reports}"))
    metric = chosen["HorizontalPodAutoscaler", "x-worker"]["spec"]["metrics"][0]["external"]["metric"]
    assert metric["selector"]["matchExpressions"][0]["values"] == ["mail", "reports"]
    fixed = by_name(rendered(helm, *WHOLE_CHART, "worker.autoscaling.enabled=false"))
    assert fixed["Deployment", "x-worker"]["spec"]["replicas"] == 1


def test_the_chart_confines_every_process_and_the_judge_as_far_as_it_can(helm: str) -> None:
    made = rendered(helm, *WHOLE_CHART)
    for name, container in containers(made).items():
        security = container["securityContext"]
        assert security["runAsUser"] == NOT_ROOT, name
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert (security["allowPrivilegeEscalation"], security["readOnlyRootFilesystem"]) == (False, True)
        kind = security["seccompProfile"]["type"]
        assert kind == ("Unconfined" if name == "x-judge" else "RuntimeDefault"), name
    found = by_name(made)
    for (kind, name), one in found.items():
        if kind in ("Deployment", "Job"):
            assert one["spec"]["template"]["spec"]["automountServiceAccountToken"] is False, name
    judge = found["Deployment", "x-judge"]["spec"]["template"]["spec"]
    assert (judge["hostUsers"], judge["containers"][0]["securityContext"]["procMount"]) == (False, "Unmasked")
    egress = found["NetworkPolicy", "x-judge"]["spec"]["egress"]
    assert {port["port"] for one in egress for port in one["ports"]} == {53, 5432, 6379, 443, 8333, 2379}
    old = by_name(rendered(helm, *WHOLE_CHART, version="1.27.0"))["Deployment", "x-judge"]["spec"]["template"]
    assert "unconfined" in old["metadata"]["annotations"].values()
    privileged = containers(rendered(helm, *WHOLE_CHART, "judge.privileged=true"))["x-judge"]
    assert privileged["securityContext"]["privileged"] is True


def test_only_the_migration_has_the_owners_login(helm: str) -> None:
    made = containers(rendered(helm, *WHOLE_CHART))
    with_owner = [name for name, one in made.items() if "migration-database-url" in str(one["env"])]
    assert with_owner == ["x-migrate"]
