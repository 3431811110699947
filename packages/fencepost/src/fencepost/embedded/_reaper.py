"""The process between Fencepost and a server that it started. It leaves no server behind.

A server must end with the process that started it, even if that process is killed with SIGKILL. The kernel's
mechanism, PR_SET_PDEATHSIG, fires when the *thread* that forked ends, and is cleared when the credentials
change; a server that is stopped (SIGSTOP) does not receive it. So each server gets a reaper:

    us ── parent pipe (a pipe, and our pidfd) ── reaper ── PR_SET_PDEATHSIG ── server ── its children

The reaper has one thread, so the kernel's mechanism works between it and the server. It waits for us to end,
then resumes the server's processes, asks the server to stop, repeats with stronger signals, and kills. It
exits only when no descendant is left: its exit proves that all processes are gone.

It is run by its path as a script, with the standard library only (`python -I -S reaper.py`), which takes
20 ms and needs no fork of a process that has threads. Its one argument is a `SpawnSpec` as JSON.
"""

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import NamedTuple, NoReturn

PR_SET_PDEATHSIG = 1
PR_SET_KEEPCAPS = 8
PR_SET_CHILD_SUBREAPER = 36
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_RAISE = 2
CLONE_NEWUSER = 0x10000000
CAP_DAC_OVERRIDE = 1
CAP_DAC_READ_SEARCH = 2
CAPABILITY_VERSION_3 = 0x20080522

GRACE_SECONDS = 5.0
REFUSED = 126


class SpawnSpec(NamedTuple):
    """What to run, under which account, and how to end it."""

    command: list[str]
    parent: int
    disguise: str
    uid: int
    gid: int
    farewell: list[int]
    """The signals that end the server, from graceful to SIGKILL."""
    sweep: list[str]
    """Directories to remove when the parent is gone and cannot do it."""


class ProcessEntry(NamedTuple):
    """One row of the process table."""

    parent: int
    state: str


def process_table() -> dict[int, ProcessEntry]:
    """Every visible process, with its parent and its state."""
    proc = Path("/proc")
    if not (proc / "self" / "stat").exists():
        return _process_table_from_ps()
    table: dict[int, ProcessEntry] = {}
    for name in os.listdir(proc):  # noqa: PTH208 (called often; a Path for each process is slow)
        if name.isdigit():
            # A process may end between the listing and the reading.
            with contextlib.suppress(OSError):
                line = (proc / name / "stat").read_text(errors="replace")
                # The name in parentheses may contain spaces and parentheses.
                state, parent = line.rpartition(")")[2].split()[:2]
                table[int(name)] = ProcessEntry(int(parent), state)
    return table


def _process_table_from_ps() -> dict[int, ProcessEntry]:
    lines = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid=,state="], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    rows = [line.split() for line in lines]
    return {int(pid): ProcessEntry(int(parent), state[0]) for pid, parent, state in rows}


def descendants(root: int) -> list[int]:
    """Every live process below this one, parents before children."""
    table = process_table()
    found: list[int] = [root]
    for ancestor in found:
        found += [pid for pid, entry in table.items() if entry.parent == ancestor and entry.state != "Z"]
    return found[1:]


def send(pid: int, signum: int) -> None:
    """Signal a process that may have ended meanwhile."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signum)


class ProcessTree:
    """The server and, once it has ended, the processes it left: the kernel gives orphans to the reaper."""

    def __init__(self, server: int, wake: int) -> None:
        self.server = server
        self.exit_code: int | None = None
        self._wake = wake

    def is_gone(self) -> bool:
        """Reap the processes that ended; true when none is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return False
            if pid == self.server:
                self.exit_code = os.waitstatus_to_exitcode(status)

    def wait_until_gone(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not self.is_gone():
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return False
            if select.select([self._wake], [], [], remaining)[0]:
                os.read(self._wake, 4096)
        return True


def main() -> int:
    task = SpawnSpec(**json.loads(sys.argv[1]))
    wake = _hear_signals()
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    parent_watches = [0, *_open_parent(task.parent)]
    process_tree = ProcessTree(_spawn(task), wake)
    os.write(1, b"%d\n" % process_tree.server)
    os.close(1)
    is_orphaned = _watch(process_tree, parent_watches, wake)
    _see_out(process_tree, task.farewell)
    if is_orphaned or os.getppid() != task.parent:
        for directory in task.sweep:
            shutil.rmtree(directory, ignore_errors=True)
    # The shell's convention: 128 plus the signal's number for a server that a signal ended.
    code = process_tree.exit_code or 0
    return 128 - code if code < 0 else code


def _watch(process_tree: ProcessTree, parent_watches: list[int], wake: int) -> bool:
    """Wait until the server has ended, the parent is gone, or a signal requests a stop.

    True when the parent is gone, or is exiting: its end of the parent pipe closes before the kernel reparents
    its children, and a server may end before the parent's exit is complete.
    """
    while True:
        ready, _, _ = select.select([*parent_watches, wake], [], [])
        if ready != [wake]:
            return True
        told = set(os.read(wake, 4096)) - {signal.SIGCHLD}
        if process_tree.is_gone() or process_tree.exit_code is not None or told:
            return False


def _see_out(process_tree: ProcessTree, farewell: list[int]) -> None:
    """Ask, repeat with stronger signals, and kill, until no process is left."""
    rungs = list(farewell)
    while not process_tree.is_gone():
        signum = rungs.pop(0) if rungs else signal.SIGKILL
        for pid in descendants(os.getpid()):
            if pid == process_tree.server or signum == signal.SIGKILL:
                send(pid, signum)
            # A stopped process receives only SIGKILL until it is continued.
            send(pid, signal.SIGCONT)
        if process_tree.wait_until_gone(GRACE_SECONDS):
            return


def _hear_signals() -> int:
    """A descriptor that becomes readable when a child ended or a signal asks the reaper to stop."""
    wake, alarm = os.pipe()
    os.set_blocking(alarm, False)
    signal.set_wakeup_fd(alarm, warn_on_full_buffer=False)
    for signum in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, _heard)
    return wake


def _heard(_signum: int, _frame: FrameType | None) -> None:
    """Does nothing: the descriptor reports the signal. Without a handler the signal would end the reaper."""


def _open_parent(parent: int) -> list[int]:
    """A descriptor that becomes readable when the parent ends.

    The parent pipe alone is not enough: a process that the parent forked without exec has a copy of its end.
    """
    if not hasattr(os, "pidfd_open"):
        return []
    try:
        descriptor = os.pidfd_open(parent)
    except OSError:
        descriptor = -1
    if os.getppid() != parent:
        sys.exit("the process that started this reaper has ended")
    return [descriptor] if descriptor >= 0 else []


def _spawn(task: SpawnSpec) -> int:
    keeper = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            _become(task, keeper)
        except BaseException as error:
            os.write(2, f"{task.command[0]} was not started: {error}\n".encode())
            os._exit(REFUSED)
    return pid


def _become(task: SpawnSpec, keeper: int) -> NoReturn:
    os.umask(0o077)
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    # Python ignores these two, and an ignored signal stays ignored in the server.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    DISGUISES[task.disguise](task.uid, task.gid)
    # Only now: the kernel clears the signal when the credentials change.
    _prctl(PR_SET_PDEATHSIG, task.farewell[0])
    if os.getppid() != keeper:
        os._exit(REFUSED)
    os.execv(task.command[0], task.command)  # noqa: S606 (a list of arguments without a shell)


def _stay(_uid: int, _gid: int) -> None:
    """Run as the present account."""


def _enter_namespace(uid: int, gid: int) -> None:
    """Appear as another account to the server, and stay the present one to the file system."""
    outer_uid, outer_gid = os.geteuid(), os.getegid()
    _check(_libc().unshare(CLONE_NEWUSER), "unshare(CLONE_NEWUSER)")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {outer_uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {outer_gid} 1")


def _drop(uid: int, gid: int) -> None:
    """Become another account permanently."""
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def _drop_but_search(uid: int, gid: int) -> None:
    """Become another account, and keep only the right to traverse directories that it may not enter.

    The alternative is to open those directories to everyone, permanently. PostgreSQL itself requires only a
    user id other than 0.
    """
    _check(_prctl(PR_SET_KEEPCAPS, 1), "prctl(PR_SET_KEEPCAPS)")
    _drop(uid, gid)
    # Containers often grant the second and not the first.
    for capability in (CAP_DAC_READ_SEARCH, CAP_DAC_OVERRIDE):
        if _keep_only(capability):
            return
    raise PermissionError("neither CAP_DAC_READ_SEARCH nor CAP_DAC_OVERRIDE may be kept")


DISGUISES = {
    "stay": _stay,
    "namespace": _enter_namespace,
    "drop": _drop,
    "drop but search": _drop_but_search,
}


def _keep_only(capability: int) -> bool:
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    # Effective, permitted and inheritable; then the same for the capabilities above 31.
    sets = (ctypes.c_uint32 * 6)(*[1 << capability] * 3, 0, 0, 0)
    if _libc().capset(header, sets) != 0:
        return False
    return _prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability) == 0


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, *arguments: int) -> int:
    """Only Linux has it; elsewhere the parent pipe alone is used."""
    if sys.platform != "linux":
        return -1
    padded = [*arguments, 0, 0, 0, 0][:4]
    return int(_libc().prctl(option, *(ctypes.c_ulong(argument) for argument in padded)))


def _check(result: int, call: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")


if __name__ == "__main__":
    sys.exit(main())
