"""`fencepost torture` as a command: the documented system, and the files that it leaves."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from fencepost.cli.exit_codes import ExitCode
from fencepost.embedded._deadline import Deadline

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "how-to" / "torture-your-own-application.md"
PROGRAM = "import sys; from fencepost.cli._app import main; sys.argv[0] = 'fencepost'; main()"


def torture(folder: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "torture", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
    )
    last = folder / ".fencepost" / "torture" / "last.json"
    return done.returncode, json.loads(last.read_text()) if last.exists() else {"output": done.stderr}


@pytest.mark.parametrize("wish", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.full)])
def test_one_that_is_asked_to_end_leaves_nothing_behind(tmp_path: Path, wish: signal.Signals) -> None:
    arguments = ("--seconds", "3600", "--systems", "leases,players", "--faults", "kill")
    # A short path: the paths of sockets are limited.
    with tempfile.TemporaryDirectory(prefix="fp-") as place:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, "torture", *arguments],
            cwd=tmp_path,
            env={**os.environ, "TMPDIR": place},
            stderr=subprocess.DEVNULL,
        )
        with process:
            Deadline(120, "its holders write").wait(
                lambda: (
                    process.poll() is not None
                    or any(path.stat().st_size for path in Path(place).glob("*/stage-0/operations.jsonl"))
                )
            )
            process.send_signal(wish)
            # Nothing waits for an answer that is not given any more.
            process.wait(60)

        assert process.returncode == ExitCode.INTERRUPTED
        assert list(Path(place).iterdir()) == []


def test_the_documented_system_runs_as_it_stands_and_an_easy_run_is_void(tmp_path: Path) -> None:
    block = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert block is not None
    (tmp_path / "clicks.py").write_text(block[1])

    code, facts = torture(tmp_path, "--seconds", "2", "--systems", "clicks:Clicks", "--faults", "clock")

    assert (code, facts["verdict"]) == (ExitCode.VOID, "void"), facts
    assert any("ambiguous outcomes" in reason for reason in facts["void_because"])
    assert facts["effects"] > 0
    assert (tmp_path / ".fencepost" / "torture" / "last.html").exists()
