"""A program for tests to kill: it starts a pair as told, says which processes there are, and waits.

python starter.py DIRECTORY [plain | from-a-thread | paused | with-a-fork | ephemeral]
"""

import json
import os
import signal
import sys
import threading
from pathlib import Path

from fencepost.embedded import Pair
from fencepost.embedded._reaper import descendants


def start_from_a_thread(pair: Pair) -> None:
    """The thread that starts the servers ends; the servers must not end with it."""
    thread = threading.Thread(target=pair.start)
    thread.start()
    thread.join()


def fork() -> int:
    """A child that has a copy of every descriptor of ours, and lives on."""
    child = os.fork()
    if child == 0:
        signal.pause()
    return child


def main() -> None:
    directory, manner = Path(sys.argv[1]), sys.argv[2]
    pair = Pair(directory, ephemeral=manner == "ephemeral")
    if manner == "from-a-thread":
        start_from_a_thread(pair)
    else:
        pair.start()
    pids = descendants(os.getpid())
    if manner == "paused":
        pair.postgres.pause()
        pair.valkey.pause()
    forked = fork() if manner == "with-a-fork" else None
    report = {"pids": pids, "forked": forked, "admin_url": pair.admin_url}
    sys.stdout.write(json.dumps(report) + "\n")
    sys.stdout.flush()
    signal.pause()


if __name__ == "__main__":
    main()
