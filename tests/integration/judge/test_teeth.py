"""Bugs planted into fencepost-box: the hostile programs must notice each of them."""

import shutil
from pathlib import Path

import pytest

from fencepost_judge.sandbox import _box_binary as box_binary
from tests.integration.judge.env import JudgingEnv
from tests.integration.judge.hostile_programs import compile_zoo, expectations

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="the boxes need a C compiler: install gcc")

GROUPLESS = {
    "children have memory of their own": (
        "process_tree.c",
        "resident_kb_of(pids[i]);\n    count += children_of(pids[i], pids + count, TREE_MAX - count);",
        "resident_kb_of(pids[i]);",
        "memory_children",
    ),
    "what is shared is counted for each": (
        "process_tree.c",
        "+= share_kb_of(pids[i]);",
        "+= resident_kb_of(pids[i]);",
        "memory_shared_by_forks",
    ),
    "the addresses are bounded, for lack of a better bound": (
        "guard.c",
        "  if (!grouped) refuse_files_in_memory(start->error_message);\n",
        "  if (!grouped) limit(start->error_message, RLIMIT_AS, 1ul << 32, 1ul << 32);\n",
        "memory_reserved_only",
    ),
}
"""Seen where there is no cgroup, which would hide them."""
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
    "an end of a pair may be given a name": (
        "guard.c",
        "DENY(bind, EPERM), ",
        "",
        "pair_binds",
    ),
    "the store is not hidden": ("init.c", "  hide_store(files->socket);\n", "", "store_is_empty"),
    "mounts are listed with their places outside": (
        "init.c",
        ".hide_mounts = outside >= 0",
        ".hide_mounts = false",
        "proc_shows_no_host_path",
    ),
    "process 1 is shown": (
        "init.c",
        "subset=pid,hidepid=2",
        "subset=pid",
        "proc_of_others_shows_no_host_path",
    ),
    "cgroups are named from outside": (
        "guard.c",
        "  if (fd_count > 3 && order->proc) hide_cgroups(start->error_message);\n",
        "",
        "proc_shows_no_host_path",
    ),
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
    **GROUPLESS,
}
QUICK = (
    "no filter of system calls",
    "links are followed out of the box",
    "mounts are listed with their places outside",
    "process 1 is shown",
)


def mutant(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file, old, new, _ = MUTANTS[name]
    sources = folder / "box"
    shutil.copytree(box_binary.SOURCES, sources)
    text = (sources / file).read_text()
    assert text.count(old) == 1, "the planted bug no longer fits the source"
    (sources / file).write_text(text.replace(old, new))
    with monkeypatch.context() as patch:
        patch.setattr(box_binary, "SOURCES", sources)
        return box_binary.compile_into(folder / "bin")


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.full) for name in MUTANTS]
)
async def test_a_planted_bug_is_noticed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env = JudgingEnv(tmp_path, cgroup=name not in GROUPLESS)
    zoo = env.workspace / "app/zoo"
    compile_zoo(zoo)
    file, _, _, case = MUTANTS[name]
    async with env.boxes(slots=1, box_program=mutant(name, tmp_path / "mutant", monkeypatch)) as boxes:
        ran = await env.run(boxes, ["/app/zoo", case], out=env.new_folder(), proc=True)
        kind = boxes._agents[0].hello["cgroup"]  # pyright: ignore[reportPrivateUsage]
    expected = expectations(zoo)[case]
    if name == "cgroups are named from outside" and kind == "none":
        pytest.skip("there is no cgroup here: run as root")
    if file == "cgroup.c" and kind not in ("v1", "hybrid"):
        pytest.skip("the bug is planted where a cgroup v1 is used, and there is none here: run as root")

    noticed = b"ESCAPED" in ran.stdout or ran.outcome.verdict != expected.verdict
    assert noticed, ran
