"""What the sandbox can do here, found by doing it: `fencepost judge probe` says it, and so does the start."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fencepost.judge.sandbox import bubblewrap, program
from fencepost.judge.sandbox.order import Site

PROBE_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Report:
    """Whether boxes can run, and every way in which they are weaker than they could be."""

    ready: bool
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    error: str = ""
    remedy: str = ""
    bubblewrap: Path | None = None
    """What holds programs here, where fencepost-box could not be compiled."""

    @property
    def kind(self) -> str:
        """In a word or two: what holds programs here."""
        return "bubblewrap" if self.bubblewrap else f"box, cgroup {self.facts['cgroup']}"

    @property
    def degraded(self) -> Sequence[str]:
        if self.bubblewrap:
            return bubblewrap.DEGRADED
        found: list[str] = []
        if self.ready and self.facts["cgroup"] == "none":
            found.append(
                "no cgroup: memory is the resident size of single processes, CPU time is summed at the end. "
                "Run as root, or delegate a cgroup with the memory and pids controllers."
            )
        if self.ready and not self.facts["user_namespace"]:
            found.append("no user namespace: set sysctl user.max_user_namespaces above 0.")
        if self.ready and not self.facts["proc"]:
            found.append("no /proc in boxes: languages with a virtual machine may not run.")
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
    """Start a box's holder for real: a limit above zero does not mean that a container allows it."""
    try:
        box = program.find()
    except (program.CannotCompile, OSError) as error:
        return _probe_bubblewrap(str(error))
    with tempfile.TemporaryDirectory(prefix="fencepost-probe-") as folder:
        words = Site(Path(folder), cgroup=cgroup).words()
        try:
            done = subprocess.run(
                [box, "probe", *words], capture_output=True, timeout=PROBE_SECONDS, check=False, env={}
            )
            facts: dict[str, Any] = json.loads(done.stdout)
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            return Report(ready=False, error=f"fencepost-box does not answer: {error}.")
    ready, wrong = bool(facts.pop("ready")), str(facts.pop("error"))
    remedy = "Allow user namespaces (sysctl user.max_user_namespaces), or in a container, unshare and mount."
    return Report(ready, facts, wrong, "" if ready else remedy)


def _probe_bubblewrap(why: str) -> Report:
    """Nobody could compile fencepost-box: the next best, if it is there and works."""
    found = bubblewrap.find()
    wrong = bubblewrap.probe(found) if found else ""
    if found is None or wrong:
        remedy = "Install a C compiler (Debian: gcc), or bubblewrap for a weaker sandbox; then try again."
        return Report(ready=False, error=f"{why} {wrong}".strip(), remedy=remedy)
    facts = {"cgroup": "none", "user_namespace": True, "proc": True, "root": os.geteuid() == 0}
    return Report(ready=True, facts=facts, bubblewrap=found)
