"""Bugs planted into fencepost-box: the hostile programs must notice each of them."""

import shutil
from pathlib import Path

import pytest

from fencepost.judge.sandbox import program
from tests.integration.judge.stage import Stage
from tests.integration.judge.zoo import compile_zoo, expectations

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="the boxes need a C compiler: install gcc")

MUTANTS = {
    "no filter of system calls": (
        "guard.c",
        "if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))",
        "if (!filter.len)",
        "socket_inet",
    ),
    "limits of others may be changed": (
        "guard.c",
        "WEIGH(prlimit64, PRLIMIT), ",
        "",
        "call_limit_init",
    ),
    "the store is not hidden": ("init.c", "  hide_store(files->socket);\n", "", "store_is_empty"),
    "links are followed out of the box": (
        "copyout.c",
        "O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC",
        "O_RDONLY | O_NONBLOCK | O_CLOEXEC",
        "link_in_output",
    ),
    "daemons are left to themselves": ("init.c", "  kill(-1, SIGKILL);\n", "", "daemon_that_ignores"),
    "full outputs are taken for whole ones": (
        "supervise.c",
        "signal == SIGXFSZ || full)",
        "signal == SIGXFSZ)",
        "output_ignores_the_signal",
    ),
    "memory has no limit": (
        "cgroup.c",
        'if (!write_number(group->run_dir, "memory.limit_in_bytes", bytes)) return false;',
        "bytes = 1L << 40;",
        "memory_big_static",
    ),
}
QUICK = ("no filter of system calls", "links are followed out of the box")


def mutant(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file, old, new, _ = MUTANTS[name]
    sources = folder / "box"
    shutil.copytree(program.SOURCES, sources)
    text = (sources / file).read_text()
    assert text.count(old) == 1, "the planted bug no longer fits the source"
    (sources / file).write_text(text.replace(old, new))
    with monkeypatch.context() as patch:
        patch.setattr(program, "SOURCES", sources)
        return program.compile_into(folder / "bin")


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.full) for name in MUTANTS]
)
async def test_a_planted_bug_is_noticed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(tmp_path)
    zoo = stage.workspace / "app/zoo"
    compile_zoo(zoo)
    case = MUTANTS[name][3]
    async with stage.boxes(slots=1, box_program=mutant(name, tmp_path / "mutant", monkeypatch)) as boxes:
        ran = await stage.run(boxes, ["/app/zoo", case], out=stage.new_folder(), proc=True)
    expected = expectations(zoo)[case]

    noticed = b"ESCAPED" in ran.stdout or ran.outcome.verdict != expected.verdict
    assert noticed, ran
