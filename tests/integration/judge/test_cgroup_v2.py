"""What the box makes of cgroup v2, on a kernel of paper: few machines that test this have a real one."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from fencepost_judge._protocol import Verdict
from fencepost_judge.sandbox import _box_binary as box_binary
from tests.integration.judge.env import QUICK, JudgingEnv

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="the boxes need a C compiler: install gcc")
NEW = {
    "cgroup.procs": "",
    "cgroup.subtree_control": "",
    "cgroup.kill": "",
    "cpu.stat": "usage_usec 7000\nuser_usec 5000\n",
    "memory.events": "low 0\nhigh 0\nmax 4\noom 0\noom_kill 0\n",
    "memory.max": "max\n",
    "memory.peak": "41943040\n",
    "memory.swap.max": "max\n",
    "pids.max": "max\n",
}


@dataclass(frozen=True)
class Paper:
    """The tree, and a box that believes in it."""

    tree: Path
    box: Path

    @property
    def groups(self) -> Path:
        return self.tree / "groups"

    def lay(self, *, controllers: str = "cpu memory pids", place: str = "/given") -> None:
        for name in ("new", "last", "unused", f"groups{place}"):
            (self.tree / name).mkdir(parents=True)
        (self.groups / "given/cgroup.controllers").write_text(f"{controllers}\n")
        (self.groups / "given/cgroup.subtree_control").write_text("")
        (self.tree / "mountinfo").write_text(f"30 23 0:26 / {self.groups} rw - cgroup2 cgroup2 rw\n")
        (self.tree / "cgroup").write_text(f"0::{place}\n")
        for name, text in NEW.items():
            (self.tree / "new" / name).write_text(text)

    def probe(self) -> str:
        done = subprocess.run([self.box, "probe"], capture_output=True, check=True)
        return str(json.loads(done.stdout)["cgroup"])

    def last(self, name: str) -> str:
        return (self.tree / "last" / name).read_text()

    def left(self) -> list[str]:
        return [path.name for path in self.groups.rglob("fencepost-box-*")]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Paper:
    folder = tmp_path_factory.mktemp("paper")
    paper = Paper(folder / "tree", folder / "fencepost-box-paper")
    calls = ",".join(f"--wrap={name}" for name in ("lines_open", "mkdir", "rmdir"))
    flags = [*box_binary.FLAGS, f'-DTREE="{paper.tree}"', f"-I{box_binary.SOURCES}", f"-Wl,{calls}"]
    sources = [*box_binary.SOURCES.glob("*.c"), Path(__file__).parent / "paper_kernel.c"]
    subprocess.run(["cc", *flags, "-o", paper.box, *sources], check=True)
    return paper


@pytest.fixture
def paper(compiled: Paper) -> Iterator[Paper]:
    yield compiled
    shutil.rmtree(compiled.tree)


@pytest.fixture
def env(tmp_path: Path) -> JudgingEnv:
    env = JudgingEnv(tmp_path)
    shutil.copy("/bin/true", env.workspace / "app/true")
    return env


@pytest.mark.parametrize("agents", [True, False])
async def test_limits_are_written_figures_are_read_and_the_group_is_removed(
    env: JudgingEnv, paper: Paper, agents: bool
) -> None:
    paper.lay()
    async with env.boxes(slots=1, agents=agents, box_program=paper.box) as boxes:
        ran = await env.run(boxes, ["/app/true"])
    (paper.tree / "new/memory.events").write_text("oom 1\noom_kill 1\n")
    async with env.boxes(slots=1, agents=agents, box_program=paper.box) as boxes:
        killed = await env.run(boxes, ["/app/true"])

    assert (ran.outcome.verdict, ran.outcome.mem_kb) == (Verdict.OK, 40_960)
    assert killed.outcome.verdict is Verdict.MLE
    # On paper a number is written over what was there, and does not end it.
    assert paper.last("memory.max") == str(QUICK.memory_kb * 1024)
    assert paper.last("memory.swap.max") == "0ax\n"
    assert paper.last("pids.max") == f"{QUICK.processes}x\n"
    assert paper.last("cgroup.procs") == "0"
    assert (paper.groups / "given/cgroup.subtree_control").read_text() == "+memory +pids"
    assert paper.left() == []


async def test_without_a_peak_the_largest_process_is_told_and_never_nothing(
    env: JudgingEnv, paper: Paper
) -> None:
    paper.lay()
    (paper.tree / "new/memory.peak").unlink()
    async with env.boxes(slots=1, box_program=paper.box) as boxes:
        ran = await env.run(boxes, ["/app/true"])

    assert ran.outcome.verdict is Verdict.OK
    assert 0 < ran.outcome.mem_kb < 40_960


@pytest.mark.parametrize(
    ("controllers", "place", "kind"),
    [
        ("memory pids", "/given", "v2"),
        ("memory pids", "/given/fencepost-judge", "v2"),
        ("cpu memory", "/given", "none"),
        ("", "/given", "none"),
    ],
)
def test_v2_is_used_where_its_controllers_were_given_to_us(
    paper: Paper, controllers: str, place: str, kind: str
) -> None:
    """A process in the leaf for judges already uses the group above it."""
    paper.lay(controllers=controllers, place=place)

    assert paper.probe() == kind
    assert paper.left() == []


def test_a_sweep_removes_the_groups_of_the_dead(paper: Paper) -> None:
    paper.lay(place="/given/fencepost-judge")
    namespace = Path("/proc/self/ns/pid").stat().st_ino
    dead = f"fencepost-box-{namespace}-{2**22 + 1}-123"
    elsewhere = f"fencepost-box-{namespace + 1}-{2**22 + 1}-123"
    for name in (dead, elsewhere):
        (paper.groups / "given" / name).mkdir()
    subprocess.run([paper.box, "sweep"], check=True)

    assert paper.left() == [elsewhere]
