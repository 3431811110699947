"""A sandbox by bubblewrap, for machines where fencepost-box could not be compiled. It isolates, but measures
less precisely.

It has the same namespaces, root, user id, filter and process limits. What is missing without a cgroup and a
supervisor in C is listed in DEGRADED, and shown wherever the judge describes its sandbox.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import rmtree, which
from typing import Any, cast

from fencepost.backoff import Backoff
from fencepost_judge._protocol import RunOutcome, Verdict, sandbox_failure
from fencepost_judge.sandbox._agent import CEILING
from fencepost_judge.sandbox._box_files import BoxFiles
from fencepost_judge.sandbox._copying import OutputRefused, bytes_below, copy_out
from fencepost_judge.sandbox._process_tree import Seen, children_of, look_at
from fencepost_judge.sandbox._run_spec import RunSpec, Site
from fencepost_judge.sandbox._system_calls import filter_program, is_known_machine

DEGRADED = (
    "no C compiler, so bubblewrap instead of fencepost-box: install one (Debian: gcc).",
    (
        "bubblewrap: memory is what single processes were seen to use, CPU time is looked at in steps of "
        "25 ms, and a few of them are bubblewrap's own; files are bounded one by one, not in number."
    ),
    "bubblewrap: /proc shows a program the paths of this machine at which its files and mounts lie.",
)
LOOKS = Backoff(0.002, 0.025, jitter=0)
PROBE_SECONDS = 30
INSIDE_ID = "1000"
SHELL = "/bin/sh"
DEVICES = ("null", "zero", "full", "random", "urandom")
LINKS = {"/box": "/w/box", "/tmp": "/w/tmp", "/dev/shm": "/w/shm", "/dev/fd": "/proc/self/fd"}  # noqa: S108
MERGED = ("/bin", "/lib", "/lib32", "/lib64", "/libx32", "/sbin")
"""Links on a merged system, folders on others."""
# The shell is process 1, under the same filter as the program: bubblewrap's own process 1 would have none,
# and its memory can be written to through /proc. The shell's messages about signals are discarded. bash calls
# the limit on processes -u, other shells -p.
LIMITING = (
    "ulimit -c 0; ulimit -t {seconds}; ulimit -f {blocks}; ulimit -n {files}; ulimit -s {stack_kb};"
    " ulimit -u {processes} 2>/dev/null || ulimit -p {processes};"
    " ulimit -v {address_kb};"
    ' exec 3>&2 2>/dev/null; "$@" 2>&3 3>&-; exit $?'
)


def find() -> Path | None:
    found = which("bwrap")
    return Path(found) if found and is_known_machine() else None


def probe(program: Path) -> str:
    """Creates a box to test bubblewrap here; returns the error, or an empty text."""
    shown = [word for path in ("/usr", *MERGED) if Path(path).exists() for word in ("--ro-bind", path, path)]
    command = [str(program), "--unshare-all", "--unshare-user", *shown, SHELL, "-c", ":"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PROBE_SECONDS, check=False, env={}
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bubblewrap does not answer: {error}"
    return "" if done.returncode == 0 else f"bubblewrap cannot make a box: {done.stderr.strip()[:300]}"


def reaches(path: str) -> bool:
    """Whether the programs' user can reach the path: as root, the judge switches to that user before it
    creates the box."""
    if os.geteuid() != 0:
        return True
    place = Path(path).resolve()
    return all(above.stat().st_mode & 0o001 for above in place.parents)


async def run_in_bubblewrap(program: Path, site: Site, order: RunSpec, files: BoxFiles) -> RunOutcome:
    """One run. A fault of bubblewrap itself is a sandbox failure, and never the program's."""
    with ExitStack() as closing:
        try:
            out = closing.enter_context(_scratch(site, order)) if order.out is not None else None
            ended = await _run(program, site, order, files, out)
        except OutputRefused as refused:
            return sandbox_failure(refused.reason)
        except OSError as error:
            return sandbox_failure(f"bubblewrap: {error.strerror or error}")
        finally:
            files.hand_over()
        outcome = judge_run(order, ended, _bytes_of(files.stdout), _bytes_of(files.stderr))
        if out is None or order.out is None or outcome.verdict not in (Verdict.OK, Verdict.RE) or ended.by:
            return outcome
        try:
            await asyncio.to_thread(
                copy_out, out, order.out, bytes_max=order.out_kb * 1024, files_max=order.out_files
            )
        except OutputRefused as refused:
            return replace(outcome, verdict=Verdict.RE, error=refused.reason)
        return outcome


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended. `by` is the limit for which it was killed, empty when it ended by itself."""

    by: str
    code: int | None
    """The exit code as bubblewrap reports it: a signal is above 128; None when there was no run."""
    cpu_ms: int
    wall_ms: int
    peak_kb: int


def judge_run(order: RunSpec, ended: Ended, stdout_bytes: int, stderr_bytes: int) -> RunOutcome:
    """The verdict, without I/O. The checks are in the same order as in `supervise.c`."""
    if ended.code is None and not ended.by:
        return sandbox_failure("bubblewrap: no run")
    if ended.by == "starved":
        return sandbox_failure("starved")
    limits, code = order.limits, ended.code or 0
    signal = 9 if ended.by else code - 128 if 128 < code < 193 else 0
    output_max = limits.output_kb * 1024
    full = bool(output_max) and max(stdout_bytes, stderr_bytes) >= output_max
    failed = bool(code or ended.by)
    if ended.by == "memory" or ended.peak_kb > limits.memory_kb:
        verdict = Verdict.MLE
    elif ended.by == "output" or signal == 25 or full:
        verdict = Verdict.OLE
    elif ended.by in ("cpu", "wall") or signal == 24 or ended.cpu_ms > limits.cpu_ms:
        verdict = Verdict.TLE
    elif failed and ended.peak_kb + 64 >= limits.memory_kb:
        verdict = Verdict.MLE
    else:
        verdict = Verdict.RE if failed else Verdict.OK
    return RunOutcome(
        verdict=verdict,
        time_ms=ended.cpu_ms,
        mem_kb=ended.peak_kb,
        exit_signal=signal,
        sandbox_error="",
        job_id=order.job_id,
        attempt_id=order.attempt_id,
        exit_code=0 if signal else code,
        wall_ms=ended.wall_ms,
    )


async def _run(program: Path, site: Site, order: RunSpec, files: BoxFiles, out: Path | None) -> Ended:
    with ExitStack() as closing:
        told, tells = os.pipe()
        closing.callback(os.close, told)
        rules = closing.enter_context(tempfile.TemporaryFile())
        rules.write(filter_program())
        rules.seek(0)
        words = _words(site, order, out, status=tells, rules=rules.fileno())
        is_root = os.geteuid() == 0
        try:
            # Not through asyncio, which would reap it without reading its resource usage. In the loop's own
            # thread: bubblewrap dies with the thread that started it.
            process = subprocess.Popen(  # noqa: ASYNC220
                [str(program), *words],
                stdin=files.stdin,
                stdout=files.stdout,
                stderr=files.stderr,
                pass_fds=[tells, rules.fileno()],
                env={},
                start_new_session=True,
                # As root: switch first to the programs' user, which owns nothing outside the box either.
                user=site.outer_uid if is_root else None,
                group=site.outer_uid if is_root else None,
                extra_groups=[] if is_root else None,
            )
        finally:
            os.close(tells)
        watch = _Watch(process, order, files, out)
        try:
            return await watch.until_the_end(told)
        finally:
            # Also when this task is cancelled.
            await watch.end()


def _words(site: Site, order: RunSpec, out: Path | None, *, status: int, rules: int) -> list[str]:
    limits = order.limits
    words = ["--unshare-all", "--unshare-user", "--uid", INSIDE_ID, "--gid", INSIDE_ID, "--hostname", "box"]
    words += ["--die-with-parent", "--as-pid-1", "--new-session", "--clearenv", "--cap-drop", "ALL"]
    words += ["--json-status-fd", str(status), "--seccomp", str(rules)]
    words += ["--size", str(limits.disk_kb * 1024), "--tmpfs", "/w"]
    words += [word for name in ("box", "tmp", "shm") for word in ("--dir", f"/w/{name}")]
    words += [word for name in DEVICES for word in ("--dev-bind", f"/dev/{name}", f"/dev/{name}")]
    words += [word for path, target in LINKS.items() for word in ("--symlink", target, path)]
    for root in order.roots:
        words += ["--ro-bind", root, root]
    for path in MERGED:
        if Path(path).is_symlink():
            words += ["--symlink", str(Path(path).readlink()), path]
    for source, target in order.binds.items():
        words += ["--ro-bind", str(site.workspace / source), target]
    words += ["--ro-bind", str(Path(SHELL).resolve()), "/shell"]
    words += ["--bind", str(out), "/out"] if out else ["--dir", "/w/out", "--symlink", "/w/out", "/out"]
    words += ["--proc", "/proc"] if order.proc else []
    words += [word for name, value in order.env.items() for word in ("--setenv", name, value)]
    words += [
        "--remount-ro",
        "/",
        "--chdir",
        "/out" if order.in_out else "/w/box",
        "--",
        "/shell",
        "-c",
        _limiting(order),
        "shell",
    ]
    return [*words, *order.args]


def _limiting(order: RunSpec) -> str:
    limits = order.limits
    return LIMITING.format(
        seconds=-(-limits.cpu_ms // 1000) + 1,
        # In blocks of 512 bytes, as POSIX defines.
        blocks=limits.output_kb * 2,
        files=limits.open_files,
        stack_kb=limits.memory_kb if limits.stack_kb is None else limits.stack_kb,
        # One more for the shell.
        processes=limits.processes + 1,
        # Protects the machine and does not decide the verdict, which depends on the resident size.
        address_kb=limits.memory_kb * 4 + (1 << 21),
    )


class _Watch:
    """Polls the processes of one run, and kills it when it exceeds a limit."""

    def __init__(
        self, process: subprocess.Popen[bytes], order: RunSpec, files: BoxFiles, out: Path | None
    ) -> None:
        self._process = process
        self._order = order
        self._files = files
        self._out = out
        self._began = time.monotonic()
        self._seen = Seen()
        self._by = ""
        self._reaped = False

    async def until_the_end(self, told: int) -> Ended:
        pidfd = os.pidfd_open(self._process.pid)
        loop = asyncio.get_running_loop()
        over = asyncio.Event()
        loop.add_reader(pidfd, over.set)
        try:
            waits = LOOKS.waits()
            while not over.is_set():
                with suppress(TimeoutError):
                    async with asyncio.timeout(next(waits)):
                        await over.wait()
                if not over.is_set():
                    self._look()
        finally:
            loop.remove_reader(pidfd)
            os.close(pidfd)
        _, status, used = os.wait4(self._process.pid, 0)  # noqa: ASYNC222 - It is over.
        self._reaped = True
        self._process.returncode = os.waitstatus_to_exitcode(status)
        cpu_ms = int((used.ru_utime + used.ru_stime) * 1000)
        return Ended(
            by=self._by,
            code=_exit_code(os.read(told, 65_536)),
            cpu_ms=max(cpu_ms, self._seen.cpu_ms),
            wall_ms=int((time.monotonic() - self._began) * 1000),
            peak_kb=max(1, self._seen.peak_kb),
        )

    def _look(self) -> None:
        self._seen = look_at(self._programs(), self._seen)
        wall_ms = (time.monotonic() - self._began) * 1000
        limits = self._order.limits
        if self._seen.cpu_ms > limits.cpu_ms:
            self._end("cpu")
        elif self._seen.peak_kb > limits.memory_kb:
            self._end("memory")
        elif _bytes_of(self._files.stderr) > limits.output_kb * 1024 or self._has_left_too_much():
            self._end("output")
        elif wall_ms > limits.wall_ms * CEILING:
            self._end("starved")
        elif wall_ms > limits.wall_ms and not self._seen.is_runnable:
            # Not for a runnable process: one that waits for a processor has not slept.
            self._end("wall")

    def _has_left_too_much(self) -> bool:
        return self._out is not None and bytes_below(self._out) > self._order.out_kb * 1024

    def _programs(self) -> Sequence[int]:
        """All processes below process 1 of the box, which is the shell."""
        return [pid for first in children_of(self._process.pid) for pid in children_of(first)]

    def _end(self, by: str) -> None:
        self._by = self._by or by
        self.kill()

    async def end(self) -> None:
        """Nothing of the run is left when this returns. Can be repeated."""
        if not self._reaped:
            self.kill()
            await asyncio.to_thread(self._process.wait)
            self._reaped = True

    def kill(self) -> None:
        """Kills process 1 of the box first: everything inside ends with it, and bubblewrap still accounts
        for it."""
        for pid in children_of(self._process.pid) or [self._process.pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, 9)


def _exit_code(told: bytes) -> int | None:
    """Reported only if the box was complete, so a failure of bubblewrap is never taken for the program's."""
    for line in told.splitlines():
        with suppress(ValueError, RecursionError):
            said: Any = json.loads(line)
            code = cast("dict[str, Any]", said).get("exit-code") if isinstance(said, dict) else None
            if isinstance(code, int):
                return code
    return None


@contextmanager
def _scratch(site: Site, order: RunSpec) -> Generator[Path]:
    """The folder that the program may write to as /out; it is copied after all processes have ended."""
    folder = Path(tempfile.mkdtemp(dir=site.workspace, prefix="out-"))
    try:
        if order.out_from is not None:
            copy_out(site.workspace / order.out_from, folder, bytes_max=order.out_kb * 1024)
        if os.geteuid() == 0:
            for path in (folder, *folder.rglob("*")):
                os.chown(path, site.outer_uid, site.outer_uid)
        yield folder
    finally:
        rmtree(folder, ignore_errors=True)


def _bytes_of(descriptor: int) -> int:
    try:
        return os.fstat(descriptor).st_size
    except OSError:
        return 0
