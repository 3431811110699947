"""What stands in deploy/, read as values: targets of the images, services of compose, the rendered chart."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
COMPOSE = DEPLOY / "compose" / "compose.yaml"
CHART = DEPLOY / "chart"
GIVEN = re.compile(r"\$\{(\w+)(?::[-?](\w*))?\}")
WHOLE_CHART = (
    "worker.application=shop.tasks",
    "judge.enabled=true",
    "flows.applications.totals=shop.streams:totals",
)


@dataclass
class Target:
    """One stage of the Dockerfile with what it has from the stage that it is built on."""

    name: str
    parent: "Target | None"
    instructions: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    def all(self, word: str) -> list[str]:
        """The values of an instruction, those of the parents first."""
        before = self.parent.all(word) if self.parent else []
        return [*before, *(value for name, value in self.instructions if name == word)]

    @property
    def command(self) -> list[str]:
        found: list[str] = json.loads(self.all("CMD")[-1])
        return found

    @property
    def installed(self) -> dict[str, set[str]]:
        """Our distributions that pip installs, each with its extras."""
        found: dict[str, set[str]] = {}
        for command in self.all("RUN"):
            for name, extras in re.findall(
                r"(?:\./packages/|[\s'])(fencepost(?:-\w+)?)(?:\[([\w,]+)\])?(?=['\s]|$)", command
            ):
                if "pip" in command:
                    found.setdefault(name, set()).update(filter(None, extras.split(",")))
        return found

    @property
    def debian_packages(self) -> set[str]:
        """What apt installs."""
        asked = [
            command.split("install", 1)[1].split("&&")[0]
            for command in self.all("RUN")
            if "apt-get" in command
        ]
        return {word for words in asked for word in words.split() if not word.startswith("-")}


def image_targets() -> dict[str, Target]:
    """The stages of the Dockerfile by name, in its order."""
    text = re.sub(r"\\\n\s*", "", (DEPLOY / "Dockerfile").read_text())
    found: dict[str, Target] = {}
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        word, _, value = line.partition(" ")
        if word == "FROM":
            parent, _, name = value.partition(" AS ")
            found[name] = Target(name, found.get(parent))
        else:
            list(found.values())[-1].instructions.append((word, value))
    return found


def compose_services(**given: str) -> dict[str, dict[str, Any]]:
    """The services with their variables filled in: with those given, a default, or a word of their own."""

    def value(match: re.Match[str]) -> str:
        name, default = match.groups()
        return given.get(name) or default or f"the-{name.lower().replace('_', '-')}"

    document = yaml.safe_load(GIVEN.sub(value, COMPOSE.read_text()))
    services: dict[str, dict[str, Any]] = document["services"]
    return services


def ours(services: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The services that run our images."""
    return {name: one for name, one in services.items() if "Dockerfile" in str(one.get("build"))}


def find_helm() -> str | None:
    beside = Path(sys.executable).with_name("helm")
    return str(beside) if beside.exists() else shutil.which("helm")


def rendered(helm: str, *settings: str, version: str = "1.33.0") -> list[dict[str, Any]]:
    """The documents of the chart."""
    options = [option for setting in settings for option in ("--set", setting)]
    done = subprocess.run(
        [helm, "template", "x", str(CHART), "--kube-version", version, *options],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def by_name(documents: Sequence[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(one["kind"], one["metadata"]["name"]): one for one in documents}


def containers(documents: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The container of each Deployment and Job, by the document's name."""
    return {
        one["metadata"]["name"]: one["spec"]["template"]["spec"]["containers"][0]
        for one in documents
        if "template" in one["spec"]
    }
