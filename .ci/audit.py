"""Known vulnerabilities of the pinned dependencies, as the package registry reports them.

    python .ci/audit.py [REPORT]

Runs pip-audit on both lock files, or reads a report that it wrote. Fails when a vulnerability is known that
`.ci/audit-exceptions.txt` does not except. Dependencies that the registry knows nothing about are counted: a
mirror often has packages only.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
LOCKS = ("requirements.lock", "requirements-dev.lock")
AUDITOR = "pip-audit==2.10.1"


def exceptions(text: str, today: date) -> dict[str, str]:
    """`ID DATE REASON`, one a line: the vulnerability is accepted until that day."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        try:
            name, until, reason = line.split(maxsplit=2)
            ends = date.fromisoformat(until)
        except ValueError:
            raise SystemExit(f"Not an exception, `ID YYYY-MM-DD REASON`: {line}") from None
        if ends >= today:
            found[name] = reason
    return found


def judge(report: dict[str, Any], excepted: dict[str, str]) -> tuple[list[str], list[str], int]:
    """Vulnerabilities, those that are excepted, and how many dependencies the registry does not know."""
    open_ones: list[str] = []
    accepted: list[str] = []
    for one in report["dependencies"]:
        for vulnerability in one.get("vulns", ()):
            names = {vulnerability["id"], *vulnerability.get("aliases", ())}
            fixed = ", ".join(vulnerability.get("fix_versions", ())) or "no version"
            line = f"{one['name']} {one['version']}: {vulnerability['id']}, fixed in {fixed}"
            reasons = [excepted[name] for name in sorted(names & excepted.keys())]
            if reasons:
                accepted.append(f"{line}; accepted: {reasons[0]}")
            else:
                open_ones.append(line)
    return open_ones, accepted, sum("skip_reason" in one for one in report["dependencies"])


def ask(lock: Path) -> dict[str, Any]:
    uv = shutil.which("uv") or str(HERE.parent / ".venv/bin/uv")
    asked = [uv, "tool", "run", "--quiet", AUDITOR, "-r", str(lock), "--no-deps", "--disable-pip"]
    answer = subprocess.run(
        [*asked, "--format", "json", "--progress-spinner", "off"], capture_output=True, text=True, check=False
    )
    try:
        report: dict[str, Any] = json.loads(answer.stdout)
    except ValueError:
        print(f"{lock.name} was not audited: {answer.stderr.strip().splitlines()[-1:] or 'no answer'}")
        return {"dependencies": []}
    return report


def main(arguments: list[str]) -> int:
    excepted = exceptions((HERE / "audit-exceptions.txt").read_text(), datetime.now(UTC).date())
    if arguments:
        reports = {path: json.loads(Path(path).read_text()) for path in arguments}
    else:
        reports = {name: ask(HERE.parent / name) for name in LOCKS}
    failed = False
    for name, report in reports.items():
        found, accepted, unknown = judge(report, excepted)
        asked = len(report["dependencies"])
        print(f"{name}: {asked - unknown} of {asked} dependencies audited, {len(found)} vulnerable.")
        for line in (*found, *accepted):
            print(f"  {line}")
        failed = failed or bool(found)
    if failed:
        print("Upgrade (`make lock`), or accept one for a time: see SECURITY.md, Dependencies.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
