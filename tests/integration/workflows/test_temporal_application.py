"""The application of the guide from Temporal, as printed, on Temporal's own development server."""

import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.environments import CannotInstall, EmptyEnvironment
from fencepost.embedded._deadline import Deadline
from tests.integration.client.page import blocks

PAGE = Path(__file__).parents[3] / "docs/how-to/workflows-from-temporal.md"
APPLICATION = "transfers_temporal.py"
START_SECONDS_MAX = 60

pytestmark = pytest.mark.full


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    program = shutil.which("temporal")
    if program is None:
        pytest.skip(
            "the program `temporal` is not on PATH (Go: go install github.com/temporalio/cli/cmd/temporal)"
        )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [program, "server", "start-dev", "--headless", "--log-level", "error", "--port", str(port)]
    with (tmp_path / "log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as server:
        try:
            Deadline(START_SECONDS_MAX, "Temporal's server answers").wait(lambda: _answers(port, server))
            yield f"127.0.0.1:{port}"
        finally:
            server.terminate()


def _answers(port: int, server: "subprocess.Popen[bytes]") -> bool:
    assert server.poll() is None, "Temporal's server ended"
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


@pytest.mark.timeout(300)
def test_the_application_in_temporal_runs_as_printed(address: str, tmp_path: Path) -> None:
    environment = EmptyEnvironment(tmp_path / "env")
    try:
        environment.install(["temporalio==1.35.0"])
    except CannotInstall as error:
        pytest.skip(f"temporalio {error}")
    [block] = [block for block in blocks(PAGE) if block.body.startswith(f"# {APPLICATION}")]
    (tmp_path / APPLICATION).write_text(block.body)

    # Only what it prints is looked at: temporalio's threads may end the process badly after its last line.
    ran = subprocess.run(
        [environment.python, tmp_path / APPLICATION],
        capture_output=True,
        text=True,
        env={"TEMPORAL_ADDRESS": address},
        check=False,
    )

    assert ran.stdout == "['withdrawal of 500', 'deposit of 500 to b']\n", ran.stderr
