"""The judge runs with the rights that compose leaves its container: not root, without a capability, with no
new privileges, and with a scratch space as Docker mounts it. No filter of system calls is imitated."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import fencepost_judge
from tests.deployment import ROOT, compose_services, image_targets

MAIN = "from fencepost.cli._app import main; main()"
PACKAGE = Path(fencepost_judge.__file__).parent / "samples" / "fence-posts"
JUDGE = compose_services()["judge"]
DOCKERS_OWN = ("nosuid", "nodev", "noexec", "mode=1777")
"""How Docker mounts a tmpfs, unless it is told otherwise."""
USER = image_targets()["judge"].all("USER")[-1]


TOOLS = ("unshare", "setpriv", "mount", "cc")

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, TOOLS)), reason=f"needs root and {', '.join(TOOLS)}"
)


def opened_places(hold: Path) -> list[str]:
    """Commands for a mount namespace in which another user reaches our checkout and our Python, also below a
    folder that is root's alone."""
    needed = [place.resolve() for place in (ROOT, Path(sys.prefix), Path(sys.base_prefix))]
    closed = {
        next(one for one in reversed([place, *place.parents]) if not one.stat().st_mode & 0o001): place
        for place in needed
        if not all(one.stat().st_mode & 0o001 for one in (place, *place.parents))
    }
    commands: list[str] = []
    for number, place in enumerate(needed):
        commands += [f"mkdir {hold}/{number}", f"mount --bind {place} {hold}/{number}"]
    commands += [f"mount -t tmpfs -o mode=755 tmpfs {folder}" for folder in closed]
    for number, place in enumerate(needed):
        commands += [f"mkdir -p {place}", f"mount --bind {hold}/{number} {place}"]
    return commands if closed else []


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that other users may enter, as pytest's own may not."""
    with tempfile.TemporaryDirectory(prefix="fencepost-judge-") as made:
        Path(made).chmod(0o755)
        yield Path(made)


def scratch_options(given: str) -> list[str]:
    """The options of a tmpfs of compose: those given replace Docker's own of the same kind."""
    words = given.partition(":")[2].split(",")
    instead = {"exec": "noexec", "suid": "nosuid", "dev": "nodev"}
    undone = {instead[word] for word in words if word in instead}
    return [*(word for word in DOCKERS_OWN if word not in undone), *filter(None, words)]


def verify(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """`fencepost judge verify` of a sample, in a mount namespace with such a scratch space."""
    assert JUDGE["cap_drop"] == ["ALL"]
    assert "cap_add" not in JUDGE
    assert "no-new-privileges:true" in JUDGE["security_opt"]
    rights = (
        f"--reuid {USER} --regid {USER} --clear-groups --bounding-set -all --inh-caps -all --no-new-privs"
    )
    scratch, hold = folder / "scratch", folder / "hold"
    scratch.mkdir()
    hold.mkdir()
    mounts = [*opened_places(hold), f"mount -t tmpfs -o {','.join(options)} tmpfs {scratch}"]
    script = " && ".join([*mounts, f'exec setpriv {rights} "$@"'])
    words = [sys.executable, "-c", MAIN, "judge", "verify", str(PACKAGE)]
    return subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", *words],
        cwd=folder,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(scratch),
            "TMPDIR": str(scratch),
            "JUDGE_LANGUAGES": "c,python",
        },
        capture_output=True,
        text=True,
        check=False,
    )


def test_it_judges_with_the_rights_that_compose_leaves_it(folder: Path) -> None:
    [given] = [place for place in JUDGE["tmpfs"] if place.startswith("/tmp:")]  # noqa: S108 - Compared.
    done = verify(folder, *scratch_options(given))
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_does_not_where_programs_may_not_run_from_its_scratch_space(folder: Path) -> None:
    """Docker's default: the option that compose gives is needed."""
    done = verify(folder, *DOCKERS_OWN)
    assert done.returncode != 0
    assert "accepted/posts.c: sandbox: exec: Permission denied" in done.stdout
