"""The version of the code that runs, so that measurements can be reproduced."""

import subprocess
from pathlib import Path

HERE = Path(__file__).parent
SECONDS_MAX = 10


def revision() -> str:
    """The commit, if the package lies in a repository; `+` marks uncommitted changes of the package."""
    commit = _git("rev-parse", "--short", "HEAD")
    return commit + ("+" if commit and _git("status", "--porcelain", "--", ".") else "") or "unknown"


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(HERE), *arguments],
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
