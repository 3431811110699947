from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fencepost.cli.findings import FindingState
from fencepost.cli.probes import _postgres as postgres
from fencepost.cli.probes import _redis as redis
from fencepost.cli.probes._servers import probe_binaries, probe_python
from fencepost.cli.probes.machine import ThisMachine
from fencepost.cli.probes.programs import PROGRAMS, NeededProgram, probe_program, probe_programs, version_in
from fencepost_judge.sandbox._doctor_probe import (
    cgroup_mounts,
    probe_bubblewrap,
    probe_cgroups,
    probe_judge,
    probe_user_namespaces,
)


@dataclass
class FakeMachine:
    """A machine that has what a test writes down."""

    programs: dict[str, str | None] = field(default_factory=dict[str, "str | None"])
    files: dict[str, str] = field(default_factory=dict[str, str])
    writable_paths: set[str] = field(default_factory=set[str])

    def which(self, program: str) -> Path | None:
        return Path("/bin") / program if program in self.programs else None

    def output(self, *command: str | Path) -> str | None:
        return self.programs.get(Path(command[0]).name, "postgres (PostgreSQL) 18.4")

    def text(self, path: str) -> str | None:
        return self.files.get(path)

    def writable(self, path: str) -> bool:
        return path in self.writable_paths


JAVA = NeededProgram(
    "checking", "java", ("java", "jre"), "no model checking", "Debian: default-jre", "-version", (11,)
)


def test_a_program_is_found_under_any_of_its_names() -> None:
    finding = probe_program(FakeMachine({"jre": 'openjdk version "17.0.15" 2025-04-15'}), JAVA)
    assert (finding.state, finding.detail) == (FindingState.OK, "17.0.15  /bin/jre")


def test_a_program_that_is_not_there_says_what_is_lost_and_what_to_install() -> None:
    finding = probe_program(FakeMachine(), JAVA)
    assert (finding.state, finding.detail) == (FindingState.LACKING, "not found; no model checking")
    assert finding.remedy == "Install it (Debian: default-jre)."


def test_a_program_that_is_too_old_is_lacking() -> None:
    finding = probe_program(FakeMachine({"java": "openjdk version 8.0.1"}), JAVA)
    assert (finding.state, finding.detail) == (
        FindingState.LACKING,
        "/bin/java is 8.0.1, and 11 is needed; no model checking",
    )


def test_a_shim_that_does_not_run_is_lacking() -> None:
    finding = probe_program(FakeMachine({"java": None}), JAVA)
    assert (finding.state, finding.detail) == (
        FindingState.LACKING,
        "/bin/java does not run; no model checking",
    )


def test_every_program_is_probed_in_order() -> None:
    assert [finding.name for finding in probe_programs(FakeMachine())] == [
        program.name for program in PROGRAMS
    ]


def test_compilers_and_storage_are_probed_by_the_judge_and_not_without_it() -> None:
    areas = {finding.area for finding in probe_programs(FakeMachine())}
    of_the_judge = {finding.area for finding in probe_judge(FakeMachine())}

    assert {"compilers", "storage", "sandbox"} <= of_the_judge
    assert areas.isdisjoint(of_the_judge)


@pytest.mark.parametrize(
    ("text", "version"),
    [("gcc (Debian 12.2.0-14) 12.2.0", (12, 2, 0)), ("go version go1.22.1 linux", (1, 22, 1)), ("no", ())],
)
def test_a_version_is_found_in_what_a_program_says(text: str, version: tuple[int, ...]) -> None:
    assert version_in(text) == version


V1 = "cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0\n"
V2 = "cgroup2 /sys/fs/cgroup cgroup2 rw,relatime 0 0\n"


@pytest.mark.parametrize(
    ("mounts", "writable", "state", "detail"),
    [
        (V1, "/sys/fs/cgroup/memory", FindingState.OK, "v1, writable"),
        (V2, "/sys/fs/cgroup", FindingState.OK, "v2, writable"),
        (V1 + V2, "/sys/fs/cgroup/memory", FindingState.OK, "hybrid (v1, with v2 beside it), writable"),
        (V2, "", FindingState.DEGRADED, "v2, but /sys/fs/cgroup is not writable"),
        (
            "proc /proc proc rw 0 0\nshort\n",
            "",
            FindingState.LACKING,
            "none mounted; memory is measured less well",
        ),
    ],
)
def test_cgroups_are_told_apart(mounts: str, writable: str, state: FindingState, detail: str) -> None:
    finding = probe_cgroups(FakeMachine(files={"/proc/mounts": mounts}, writable_paths={writable}))
    assert (finding.state, finding.detail) == (state, detail)


def test_a_group_that_was_given_to_us_is_where_v2_is_writable() -> None:
    files = {"/proc/mounts": V2, "/proc/self/cgroup": "0::/user.slice/judge\n"}
    given = FakeMachine(files=files, writable_paths={"/sys/fs/cgroup/user.slice/judge"})

    assert probe_cgroups(given).detail == "v2, writable"


def test_a_v1_tree_without_memory_does_not_count() -> None:
    assert cgroup_mounts("cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n") == {}


@pytest.mark.parametrize(
    ("limit", "programs", "state"),
    [
        ("0", {}, FindingState.LACKING),
        ("100", {}, FindingState.DEGRADED),
        ("100", {"unshare": None}, FindingState.LACKING),
        ("100", {"unshare": ""}, FindingState.OK),
    ],
)
def test_user_namespaces_are_tried_and_not_only_read(
    limit: str, programs: dict[str, str | None], state: FindingState
) -> None:
    machine = FakeMachine(programs, files={"/proc/sys/user/max_user_namespaces": f"{limit}\n"})
    assert probe_user_namespaces(machine).state is state


def test_bubblewrap_is_found_or_missed() -> None:
    assert probe_bubblewrap(FakeMachine()).state is FindingState.LACKING
    assert (
        probe_bubblewrap(FakeMachine({"bwrap": "bubblewrap 0.8.0"})).detail == "bubblewrap 0.8.0  /bin/bwrap"
    )


def test_an_old_python_is_lacking_and_required() -> None:
    assert probe_python((3, 10, 4)).state is FindingState.LACKING
    assert probe_python((3, 11, 0)).state is FindingState.OK


def test_a_server_binary_is_required_only_where_no_url_names_one() -> None:
    needed, spare = probe_binaries(FakeMachine(), postgres_needed=True, redis_needed=False)
    assert (needed.required, spare.required) == (True, False)
    assert needed.detail.startswith("18.4  from ")


def test_this_machine_answers() -> None:
    machine = ThisMachine(seconds=30)
    python = machine.which("python3")
    assert python is not None
    assert machine.output(python, "-c", "print('hello')") == "hello"
    assert machine.output(python, "-c", "raise SystemExit(1)") is None
    assert machine.which("no-such-program") is None
    assert machine.text("/no/such/file") is None
    assert not machine.writable("/no/such/file")


def test_an_old_postgres_is_lacking() -> None:
    assert postgres.judge_version(140_011, "db").state is FindingState.LACKING
    assert postgres.judge_version(180_004, "db").detail == "18.4 at db"


def test_a_server_that_may_lose_answered_commits_is_not_good_enough() -> None:
    finding = postgres.judge_durability(
        {"fsync": "off", "full_page_writes": "on", "synchronous_commit": "off"}
    )
    assert (finding.state, finding.required) == (FindingState.LACKING, True)
    assert finding.remedy == "Set fsync = on and synchronous_commit = on."
    assert postgres.judge_durability({"fsync": "on", "synchronous_commit": "local"}).state is FindingState.OK


@pytest.mark.parametrize(
    ("found", "state"),
    [
        (None, FindingState.LACKING),
        (5, FindingState.LACKING),
        (6, FindingState.OK),
        (7, FindingState.DEGRADED),
    ],
)
def test_a_schema_is_compared_with_the_one_this_code_brings(found: int | None, state: FindingState) -> None:
    assert postgres.judge_schema(found, 6).state is state


def test_a_role_that_can_go_around_the_fence_is_told_so() -> None:
    finding = postgres.judge_application_role("boss", ["a", "b", "c", "d", "e"])
    assert finding.state is FindingState.DEGRADED
    assert finding.detail == "boss may write a, b, c and 2 more directly, around every fence"
    assert postgres.judge_application_role("app", []).state is FindingState.OK


def test_an_owner_that_may_not_end_a_backend_is_told_so() -> None:
    assert postgres.judge_evictor(("owner", True, True)).state is FindingState.OK
    finding = postgres.judge_evictor(("owner", False, True))
    assert (finding.state, finding.remedy) == (
        FindingState.DEGRADED,
        "As a superuser: grant pg_signal_backend to owner.",
    )
    finding = postgres.judge_evictor(("owner", True, False))
    assert (finding.state, finding.remedy) == (
        FindingState.DEGRADED,
        "As a superuser: grant pg_read_all_stats to owner.",
    )


@pytest.mark.parametrize(
    ("info", "state", "shown"),
    [
        ({"redis_version": "7.2.4"}, FindingState.OK, "Redis 7.2.4 at redis://h"),
        ({"redis_version": "7.2.4", "valkey_version": "9.1.2"}, FindingState.OK, "Valkey 9.1.2 at redis://h"),
        ({"redis_version": "6.2.0"}, FindingState.LACKING, "Redis 6.2.0 at redis://h"),
    ],
)
def test_redis_and_valkey_are_told_apart(info: dict[str, str], state: FindingState, shown: str) -> None:
    finding = redis.judge_version(info, "redis://h")
    assert (finding.state, finding.detail) == (state, shown)


def test_a_redis_that_evicts_is_degraded() -> None:
    assert redis.judge_eviction({"maxmemory_policy": "allkeys-lru", "maxmemory": 0}).state is FindingState.OK
    assert redis.judge_eviction({"maxmemory_policy": "noeviction", "maxmemory": 9}).state is FindingState.OK
    assert (
        redis.judge_eviction({"maxmemory_policy": "allkeys-lru", "maxmemory": 9}).state
        is FindingState.DEGRADED
    )


def test_a_redis_that_does_not_answer_is_named_without_its_password() -> None:
    (finding,) = redis.probe_redis("redis://:s3cret@127.0.0.1:1/0", seconds=1)
    assert finding.state is FindingState.LACKING
    assert finding.detail.startswith("redis://:***@127.0.0.1:1/0 cannot be reached:")
