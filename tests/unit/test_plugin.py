"""Plugins: found by entry point; one that is broken or takes what another has is left out, and named."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PLUGIN = """
from pathlib import Path
from fencepost.plugin import Plugin
PLUGIN = Plugin(name={name!r}, about="about it", {more})
"""


def install(folder: Path, name: str, code: str) -> None:
    """As an installer leaves a distribution: a module, and what it declares."""
    (folder / f"{name}_plugin.py").write_text(code)
    described = folder / f"{name}-0.1.dist-info"
    described.mkdir()
    (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")
    (described / "entry_points.txt").write_text(f"[fencepost.plugins]\n{name} = {name}_plugin:PLUGIN\n")


def fencepost(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fencepost.cli._main", *arguments],
        env=os.environ | {"PYTHONPATH": str(folder), "DATABASE_URL": "postgresql://127.0.0.1:9/none"},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import nothing_like_this", "No module named 'nothing_like_this'"),
        ("PLUGIN = 7", "does not name a fencepost.plugin.Plugin called 'stranger'"),
        (PLUGIN.format(name="other", more=""), "does not name a fencepost.plugin.Plugin called 'stranger'"),
        (
            PLUGIN.format(name="stranger", more="schemas={'kernel': Path('.')}"),
            "It provides the component 'kernel', which another plugin provides already",
        ),
        (
            PLUGIN.format(name="stranger", more="schemas={'orders': Path('.')}"),
            "It provides the component 'orders', which another plugin provides already",
        ),
        (
            PLUGIN.format(name="stranger", more="commands={'orders': 'json:dumps'}"),
            "It provides the command 'orders', which another plugin provides already",
        ),
        (
            PLUGIN.format(name="stranger", more="commands={'jobs': 'json:dumps'}"),
            "It provides the command 'jobs', which the library has itself",
        ),
        (
            PLUGIN.format(name="stranger", more="commands={'shop': 'stranger_plugin:missing'}"),
            "has no attribute 'missing'",
        ),
    ],
)
def test_a_plugin_that_cannot_be_used_is_named_and_takes_no_command_away(
    tmp_path: Path, code: str, why: str
) -> None:
    install(tmp_path, "stranger", code)

    helped, other = fencepost(tmp_path, "--help"), fencepost(tmp_path, "orders", "--help")

    assert (helped.returncode, other.returncode) == (0, 0), helped.stderr
    assert "\n  orders " in helped.stdout
    assert "fencepost: without the plugin stranger: " in helped.stderr
    assert why in helped.stderr
    assert "Traceback" not in helped.stderr


def test_nothing_is_migrated_while_a_schema_is_not_known(tmp_path: Path) -> None:
    install(tmp_path, "stranger", "import nothing_like_this")

    refused = fencepost(tmp_path, "migrate")

    assert refused.returncode == 6, refused.stderr
    assert "The plugin 'stranger' cannot be loaded, so its schema is not known." in refused.stderr
    assert "--only" in refused.stderr


def test_doctor_counts_it_as_lacking(tmp_path: Path) -> None:
    install(tmp_path, "stranger", "import nothing_like_this")

    found = fencepost(tmp_path, "doctor")

    assert found.returncode == 1
    assert "stranger" in found.stdout.partition("Required and lacking:")[2]
