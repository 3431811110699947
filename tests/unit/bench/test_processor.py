"""Processor time is that of a family of processes, also of members that have ended."""

import os
import subprocess
import sys

from bench.processor import parent_of, processor_time

BUSY = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass"


def test_what_an_ended_child_has_spent_counts() -> None:
    with processor_time(parent_of(os.getpid())) as spent:
        subprocess.run([sys.executable, "-c", BUSY], check=True)
    assert spent.seconds >= 0.3


def test_what_a_living_child_of_the_server_has_spent_counts() -> None:
    # It waits for a line when it is done, so that it lives while it is looked at.
    script = f"{BUSY}\nprint('done', flush=True)\ninput()"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        with processor_time(parent_of(child.pid)) as spent:
            child.stdout.readline()
        child.stdin.write("\n")
        child.stdin.flush()
    assert spent.seconds >= 0.2


def test_a_process_without_children_is_not_listed_as_a_parent() -> None:
    assert parent_of(2**30) == 0
