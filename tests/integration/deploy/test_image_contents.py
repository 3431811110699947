"""What an image installs is enough for its role: the same wheels and extras in an empty environment."""

import subprocess
import zipfile
from pathlib import Path

import pytest

from bench.environments import EmptyEnvironment, build_wheels, pinned
from tests.deployment import image_targets

TARGETS = image_targets()
NEEDS = {
    "serve": "import fencepost_judge, fencepost_nonces, fencepost_orders, fencepost_players",
    "worker": "import prometheus_client, redis, opentelemetry",
    "judge": "import fencepost_judge, prometheus_client",
    "flows": "import confluent_kafka, pyarrow, prometheus_client",
}
"""What each role imports only when it is used."""

pytestmark = [pytest.mark.full, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("wheels")
    build_wheels(TARGETS["build"].installed, place)
    return place


def test_the_judges_wheel_carries_the_compiled_sandbox(wheels: Path) -> None:
    [wheel] = wheels.glob("fencepost_judge-*.whl")
    assert "none-any" not in wheel.name, "it is for one kind of machine"
    with zipfile.ZipFile(wheel) as archive:
        assert any("fencepost-box" in name for name in archive.namelist())


@pytest.mark.parametrize("role", NEEDS)
def test_an_image_has_what_its_role_needs(role: str, wheels: Path, tmp_path: Path) -> None:
    environment = EmptyEnvironment(tmp_path / "env")
    asked = [f"{name}[{','.join(sorted(extras))}]" for name, extras in TARGETS[role].installed.items()]
    environment.install(asked, "--find-links", wheels, "--constraint", pinned(tmp_path))
    command, program = TARGETS[role].command, str(environment.home / "bin" / "fencepost")
    known = command[: 2 if command[0] in ("judge", "flows") else 1]
    commands = (
        [str(environment.python), "-c", NEEDS[role]],
        [program, "--version"],
        [program, *known, "--help"],
    )
    for words in commands:
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
