"""A box for one run, as a command: what it finds on the machine, and what it says when it cannot be made."""

import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from fencepost.judge.sandbox import program
from fencepost.judge.sandbox.order import Order
from tests.integration.judge.stage import LIBRARIES, QUICK, Stage

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="the boxes need a C compiler: install gcc")
ORDER = Order(args=["/app/true"], limits=QUICK, roots=LIBRARIES, binds={"app": "/app"})


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    stage = Stage(tmp_path)
    shutil.copy("/bin/true", stage.workspace / "app/true")
    return stage


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_a_place_with_a_space_in_its_name_is_found(tmp_path: Path) -> None:
    """/proc writes it as \\040, and the last mount of a hierarchy is the one that is taken."""
    outside = json.loads(subprocess.run([program.find(), "probe"], capture_output=True, check=True).stdout)
    place = tmp_path / "a place"
    place.mkdir()
    script = 'mount --rbind /sys/fs/cgroup "$1" && exec "$0" probe'
    inside = json.loads(
        subprocess.run(
            ["unshare", "--mount", "sh", "-c", script, program.find(), place],
            capture_output=True,
            check=True,
        ).stdout
    )

    assert inside == outside


def test_a_stingy_mask_of_the_judge_closes_nothing_in_the_box(stage: Stage) -> None:
    words = [*ORDER.words(), *stage.site.words(), "fd1=2"]
    done = subprocess.run([program.find(), "run", *words], capture_output=True, check=True, umask=0o077)

    assert b'"verdict":"OK"' in done.stdout


def test_a_single_box_says_why_it_could_not_be_made(stage: Stage) -> None:
    order = replace(ORDER, binds={"missing": "/app"})
    done = subprocess.run(
        [program.find(), "run", *order.words(), *stage.site.words(), "fd1=2"],
        capture_output=True,
        check=False,
    )

    assert json.loads(done.stdout)["sandbox_error"] == "bind: No such file or directory"


@pytest.mark.parametrize("link", ["app/out", "out"])
def test_a_single_box_follows_no_link_out_of_the_workspace(stage: Stage, link: str) -> None:
    (stage.workspace / link).symlink_to("/etc")
    order = replace(ORDER, binds={link: "/app"})
    done = subprocess.run(
        [program.find(), "run", *order.words(), *stage.site.words(), "fd1=2"],
        capture_output=True,
        check=False,
    )

    assert json.loads(done.stdout)["sandbox_error"].startswith("bind: ")
