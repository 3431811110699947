"""What the sandbox can do here, found by trying it; reported by `fencepost judge probe` and at startup."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fencepost_judge.sandbox import _box_binary as box_binary
from fencepost_judge.sandbox import _bubblewrap as bubblewrap
from fencepost_judge.sandbox._run_spec import Site

PROBE_SECONDS = 30
NO_CGROUP = (
    "no cgroup: memory and CPU time are what a run's processes are seen to use, every 10 ms; memfd_create is "
    "refused, and shared memory that no process maps is not counted. "
    "Run as root, or delegate a cgroup with the memory and pids controllers."
)
COUNTED_BY_NAMESPACE = (5, 14)
"""The kernel version since which RLIMIT_NPROC counts a user's processes separately for each user
namespace."""


@dataclass(frozen=True, slots=True)
class Report:
    """Whether boxes can run, and every way in which they are weaker than they could be."""

    ready: bool
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    error: str = ""
    remedy: str = ""
    bubblewrap: Path | None = None
    """The bubblewrap program, if it is used because fencepost-box could not be compiled."""

    @property
    def kind(self) -> str:
        """A short name of the sandbox in use."""
        return "bubblewrap" if self.bubblewrap else f"box, cgroup {self.facts['cgroup']}"

    @property
    def degraded(self) -> Sequence[str]:
        if self.bubblewrap:
            return bubblewrap.DEGRADED
        found: list[str] = []
        if self.ready and self.facts["cgroup"] == "none":
            found += self._without_cgroup()
        if self.ready and not self.facts["user_namespace"]:
            found.append("no user namespace: set sysctl user.max_user_namespaces above 0.")
        if self.ready and not self.facts["proc"]:
            found.append("no /proc in boxes: languages with a virtual machine may not run.")
        return found

    def _without_cgroup(self) -> list[str]:
        found = [NO_CGROUP]
        if not self.facts["processes_seen"]:
            found.append(
                "/proc does not show a program's children (hidepid; no CONFIG_PROC_CHILDREN in the kernel): "
                "until it has ended, only the program itself is measured."
            )
        if _kernel(self.facts["kernel"]) < COUNTED_BY_NAMESPACE:
            found.append(
                "the kernel is older than 5.14: the limit of processes counts every process of the user, "
                "so that a program may be refused one too early."
            )
        return found

    def lines(self) -> list[str]:
        if not self.ready:
            return [f"The sandbox cannot run: {self.error}", self.remedy]
        whose = "as root" if self.facts["root"] else "without privileges"
        return [f"The sandbox runs: {self.kind}, {whose}.", *(f"Degraded: {one}" for one in self.degraded)]

    def as_json(self) -> dict[str, Any]:
        kind = self.kind if self.ready else None
        return {
            "ready": self.ready,
            "sandbox": kind,
            **self.facts,
            "degraded": list(self.degraded),
            "error": self.error,
        }


def probe_machine(*, cgroup: bool = True) -> Report:
    """Starts a box's holder: a limit above zero does not mean that a container allows it."""
    try:
        box = box_binary.find()
    except (box_binary.CannotCompile, OSError) as error:
        return _probe_bubblewrap(str(error))
    # Any folder will do, as nothing runs: a temporary one would remain for ever if the probe were killed.
    words = Site(box.parent, cgroup=cgroup).words()
    try:
        done = subprocess.run(
            [box, "probe", *words], capture_output=True, timeout=PROBE_SECONDS, check=False, env={}
        )
        facts: dict[str, Any] = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        return Report(ready=False, error=f"fencepost-box does not answer: {error}.")
    ready, wrong = bool(facts.pop("ready")), str(facts.pop("error"))
    facts["kernel"] = os.uname().release
    remedy = "Allow user namespaces (sysctl user.max_user_namespaces), or in a container, unshare and mount."
    return Report(ready, facts, wrong, "" if ready else remedy)


def _kernel(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", release)[:2])


def _probe_bubblewrap(why: str) -> Report:
    """The fallback when fencepost-box could not be compiled: bubblewrap, if it is installed and works."""
    found = bubblewrap.find()
    wrong = bubblewrap.probe(found) if found else ""
    if found is None or wrong:
        remedy = "Install a C compiler (Debian: gcc), or bubblewrap for a weaker sandbox; then try again."
        return Report(ready=False, error=f"{why} {wrong}".strip(), remedy=remedy)
    facts = {"cgroup": "none", "user_namespace": True, "proc": True, "root": os.geteuid() == 0}
    return Report(ready=True, facts=facts, bubblewrap=found)
