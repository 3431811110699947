"""Alerts ask for metrics that exist, fire when they should and only then, and each has a page for the person
whom it wakes."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.command_line import check_options
from tests.unit.test_metric_names import collected, declarations

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "prometheus"
RUNBOOKS = ROOT / "docs" / "runbooks"
SERVICES = sorted(
    path.stem for path in RULES.glob("*.yml") if not path.stem.endswith("_test") and path.stem != "prometheus"
)
WHOLE = ("fencepost", "outbox", "jobs", "workflows", "judge", "flows")
"""Their pages have all four parts: what it means, how to look, what to do, how to know that it is over."""
EACH = pytest.mark.parametrize("service", SERVICES)
COMMAND = re.compile(r"`(fencepost [^`]+)`")


def rules(service: str) -> list[dict[str, Any]]:
    document = yaml.safe_load((RULES / f"{service}.yml").read_text())
    return [rule for group in document["groups"] for rule in group["rules"]]


def cases(service: str) -> list[dict[str, Any]]:
    document = yaml.safe_load((RULES / f"{service}_test.yml").read_text())
    return [case for test in document["tests"] for case in test["alert_rule_test"]]


def test_every_service_has_alerts() -> None:
    assert SERVICES == [
        "fencepost",
        "flows",
        "jobs",
        "judge",
        "nonces",
        "orders",
        "outbox",
        "players",
        "workflows",
    ]


@EACH
def test_every_alert_has_a_runbook_that_begins_with_its_name(service: str) -> None:
    for rule in rules(service):
        page = ROOT / rule["annotations"]["runbook"]
        assert page.read_text().startswith(f"# {rule['alert']}\n"), page


@EACH
def test_every_runbook_belongs_to_an_alert(service: str) -> None:
    pages = {f"docs/runbooks/{page.name}" for page in RUNBOOKS.glob(f"{service}-*.md")}
    assert pages == {rule["annotations"]["runbook"] for rule in rules(service)}


def test_no_runbook_belongs_to_no_service() -> None:
    assert {page.name.partition("-")[0] for page in RUNBOOKS.glob("*-*.md")} == set(SERVICES)


@pytest.mark.parametrize("service", WHOLE)
def test_a_runbook_says_how_to_look_what_to_do_and_when_it_is_over(service: str) -> None:
    for page in RUNBOOKS.glob(f"{service}-*.md"):
        text = page.read_text()
        parts = [text.find(part) for part in ("\n\n", "\n**Look.**", "\n**Do.**", "\n**Over** when ")]
        assert -1 not in parts, page
        assert parts == sorted(parts), page


def words_of(said: str) -> list[str]:
    """The words behind `fencepost`, up to a pipe, which a table's cell escapes."""
    words = shlex.split(said.replace("\\|", "|"))[1:]
    return words[: words.index("|")] if "|" in words else words


def test_a_command_that_is_not_there_is_found() -> None:
    check_options(["jobs", "list", "--queue", "mail"])
    for wrong in (["jobs", "lost"], ["jobs", "list", "--que"], ["jbos"], ["jobs"]):
        with pytest.raises(AssertionError):
            check_options(wrong)


@pytest.mark.parametrize("page", sorted(RUNBOOKS.glob("*.md")), ids=lambda page: page.stem)
def test_every_command_of_a_runbook_exists(page: Path) -> None:
    for said in COMMAND.findall(page.read_text()):
        check_options(words_of(said))


@EACH
def test_every_alert_asks_for_a_metric_that_is_exported(service: str) -> None:
    """Every name in an expression: one of two that is misspelt would never fire."""
    exported = {*declarations(), *collected()}
    for rule in rules(service):
        asked = set(re.findall(r"\bfencepost_[a-z_]+", rule["expr"]))
        assert asked, rule
        for name in asked:
            assert name in exported or re.sub(r"_(bucket|count|sum)$", "", name) in exported, name


@EACH
def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not(service: str) -> None:
    """promtool tests what it is given, and says nothing of an alert without a case."""
    alerts = {rule["alert"] for rule in rules(service)}
    assert {case["alertname"] for case in cases(service) if case["exp_alerts"]} == alerts
    assert {case["alertname"] for case in cases(service) if not case["exp_alerts"]} == alerts


@EACH
def test_promtool_accepts_the_rules_and_they_fire_when_they_should(service: str) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    for command in (["check", "rules", f"{service}.yml"], ["test", "rules", f"{service}_test.yml"]):
        ended = subprocess.run([promtool, *command], cwd=RULES, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stdout + ended.stderr
