"""`make soak HOURS=8`: everything at half load, with faults, for hours: does anything grow?

It runs `fencepost up` with every service, `fencepost demo`, which keeps all of them busy, and jobs at half of
the rate that this machine reached just before. Faults come from a seed: connections are ended, a backend is
killed (PostgreSQL recovers), Redis is wiped and loses its clients, the worker is killed or stopped beyond its
lease. Meanwhile memory, file descriptors, connections, tables, bloat and the latency of a job are sampled.

The first fifth is warm-up. After it the median of the last quarter may not lie above that of the first by
more than a bound. Figures are in .fencepost/bench/soak.json, the picture in soak.svg beside it.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import IO, Any, LiteralString, cast

import psycopg
from rich.console import Console

from bench.report import DIRECTORY, Goal, Report, machine, show, write
from bench.soak_picture import picture
from fencepost import Fencepost, FencepostError
from fencepost.embedded._reaper import descendants
from fencepost.kernel import job as kernel_job
from fencepost.redis_streams.connection import connect_sync
from fencepost.server_addresses import NOTE

OPTIONS = kernel_job.SubmitOptions(tries=100)
APP = "bench.soak_app"
WARM_UP = 0.2
LOG = "log"
SAMPLES = 240
FAULT_SECONDS = 20.0
CALIBRATION_JOBS = 2000
LATENCY_SECONDS_MAX = 60.0
# Short, so that tables reach their size within the warm-up of a short soak too.
RETENTION = {
    "HISTORY_KEEP_SEC": "60",
    "OUTBOX_KEEP_SEC": "60",
    "IDEMPOTENCY_KEEP_SEC": "60",
    "MUTATION_ANSWER_KEEP_SEC": "60",
    "JOBS_KEEP_FINISHED_SEC": "30",
    "LOG_LEVEL": "error",
}
SIZES: LiteralString = """
    select c.relname, pg_total_relation_size(c.oid) / 1048576.0,
           coalesce(s.n_dead_tup, 0), coalesce(s.n_live_tup, 0)
    from pg_class c left join pg_stat_user_tables s on s.relid = c.oid
    where c.relnamespace = 'fencepost'::regnamespace and c.relkind = 'r'
"""
END_CLIENTS: LiteralString = """
    select count(pg_terminate_backend(pid)) from pg_stat_activity
    where pid <> pg_backend_pid() and backend_type = 'client backend'
"""
A_CLIENT: LiteralString = """
    select pid from pg_stat_activity where pid <> pg_backend_pid() and backend_type = 'client backend'
    order by random() limit 1
"""
CREATE: LiteralString = """
    create table soak_effect (slot int primary key, times bigint not null) with (fillfactor = 50);
    grant select, insert, update on soak_effect to fencepost_app
"""


@dataclass(frozen=True)
class Bound:
    """How much a figure may grow: by this share of itself, and by this much in any case."""

    share: float
    amount: float


BOUNDS: Mapping[str, Bound] = {
    "memory of our processes, MB": Bound(0.15, 20),
    "memory of PostgreSQL, MB": Bound(0.25, 50),
    "memory of Valkey, MB": Bound(0.25, 10),
    "file descriptors of our processes": Bound(0.15, 10),
    "connections to PostgreSQL": Bound(0.25, 5),
    "p95 of a job, ms": Bound(0.5, 100),
    "kernel tables, MB": Bound(0.2, 20),
    "dead rows, per live row": Bound(0.5, 1.0),
}


@dataclass
class Samples:
    """What was seen, in order: seconds since the start, and each figure by its name."""

    times: list[float] = field(default_factory=list[float])
    series: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    tables: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    faults: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])

    def add(self, at: float, figures: Mapping[str, float], tables: Mapping[str, float]) -> None:
        self.times.append(at)
        for held, found in ((self.series, figures), (self.tables, tables)):
            for name, value in found.items():
                held.setdefault(name, []).append(value)


@dataclass(frozen=True)
class Growth:
    """A figure after the warm-up: in the first quarter of the rest, and in the last."""

    name: str
    early: float
    late: float
    bound: Bound

    @property
    def limit(self) -> float:
        return self.early + max(self.early * self.bound.share, self.bound.amount)

    @property
    def is_flat(self) -> bool:
        return self.late <= self.limit


def growth_of(name: str, values: Sequence[float], bound: Bound) -> Growth:
    """Compare medians: a fault makes single samples high."""
    rest = values[int(len(values) * WARM_UP) :]
    quarter = max(1, len(rest) // 4)
    return Growth(name, median(rest[:quarter]), median(rest[-quarter:]), bound)


def growing_tables(samples: Samples) -> list[Growth]:
    """Tables whose size grew by more than a fifth and 2 MB after the warm-up."""
    grown = [growth_of(name, sizes, Bound(0.2, 2.0)) for name, sizes in samples.tables.items()]
    return [one for one in grown if not one.is_flat]


class Soak:
    """The system under load, its faults and its figures."""

    def __init__(self, directory: Path, seed: int, *, app: str = APP, has_faults: bool = True) -> None:
        """Data is below `directory`, which is removed by the caller. Tests give an app that leaks."""
        self._directory = directory
        self._app = app
        self._has_faults = has_faults
        self._chance = random.Random(seed)  # noqa: S311 - Repeatable, no secret.
        self._open = ExitStack()
        self._over = threading.Event()
        self._latencies: list[float] = []
        self.samples = Samples()
        self.submitted = 0
        self.finished_late = 0
        self.rate = 0.0

    def run(self, seconds: float) -> None:
        with self._open:
            self._start(seconds)
            self.rate = self._calibrate() / 2
            loops = [self._load, self._measure, *([self._break] if self._has_faults else [])]
            threads = [threading.Thread(target=loop, daemon=True) for loop in loops]
            began = time.monotonic()
            for thread in threads:
                thread.start()
            step = max(1.0, seconds / SAMPLES)
            while (at := time.monotonic() - began) < seconds:
                with contextlib.suppress(psycopg.OperationalError, OSError):
                    self._sample(at)
                self._over.wait(step)
            self._over.set()
            for thread in threads:
                thread.join(LATENCY_SECONDS_MAX)

    def _start(self, seconds: float) -> None:
        environment = {**os.environ, **RETENTION, "FENCEPOST_DATA_DIR": str(self._directory)}
        program = str(Path(sys.executable).with_name("fencepost"))
        up = [program, "up", "--directory", str(self._directory), "--port", "0", "--json"]
        # The table is there before the worker asks for it.
        log = self._open.enter_context((self._directory.parent / LOG).open("w"))
        self._up = self._open.enter_context(_running([*up, "--app", self._app], environment, log))
        assert self._up.stdout is not None
        if not self._up.stdout.readline():
            raise RuntimeError(
                f"fencepost up has ended:\n{(self._directory.parent / LOG).read_text()[-2000:]}"
            )
        addresses = json.loads((self._directory / NOTE).read_text())
        self._admin_url, self._redis_url = addresses["migration_url"], addresses["redis_url"]
        with closing(self._admin()) as admin:
            admin.execute(CREATE)
        self._url = addresses["service_url"]
        demo = [program, "demo", "--force", "--seconds", str(seconds + 600)]
        self._open.enter_context(_running(demo, environment, log))

    def _admin(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self._admin_url, autocommit=True, connect_timeout=5)

    @contextmanager
    def _client(self) -> Generator[Any]:
        with Fencepost(self._url, redis_url=self._redis_url).sync() as fp:
            yield fp

    def _calibrate(self) -> float:
        """Jobs a second, as fast as they can."""
        with self._client() as fp:
            began = time.monotonic()
            jobs = self._submit(fp, CALIBRATION_JOBS)
            fp.jobs.wait(jobs[-1], within=300)
            while self._waiting() > 0:
                time.sleep(0.05)
            return CALIBRATION_JOBS / (time.monotonic() - began)

    def _waiting(self) -> int:
        with closing(self._admin()) as admin:
            [(count,)] = admin.execute(
                "select count(*) from fencepost.job_waiting where queue = 'soak'"
            ).fetchall()
            return int(count)

    def _submit(self, fp: Any, count: int) -> list[int]:
        numbers = range(self.submitted, self.submitted + count)
        self.submitted += count
        rows = [{"number": number} for number in numbers]
        with fp.transaction() as tx:
            return [one.job_id for one in tx.run(kernel_job.submit_many("soak", "write", rows, OPTIONS))]

    def _load(self) -> None:
        """Half of what the machine can, in ten helpings a second."""
        due = 0.0
        with self._client() as fp:
            while not self._over.wait(0.1):
                due += self.rate / 10
                count, due = int(due), due - int(due)
                if count:
                    with contextlib.suppress(FencepostError, psycopg.OperationalError):
                        self._submit(fp, count)

    def _measure(self) -> None:
        """One job after another: from the submission to the result."""
        with self._client() as fp:
            while not self._over.wait(0.2):
                began = time.monotonic()
                try:
                    [job] = self._submit(fp, 1)
                    fp.jobs.wait(job, within=LATENCY_SECONDS_MAX)
                except TimeoutError:
                    self.finished_late += 1
                except (FencepostError, psycopg.OperationalError):
                    continue
                self._latencies.append((time.monotonic() - began) * 1000)

    def _break(self) -> None:
        began = time.monotonic()
        faults: Mapping[str, Callable[[], object]] = {
            "connections ended": lambda: self._ask(END_CLIENTS),
            "backend killed": self._kill_backend,
            "Redis wiped": lambda: self._ask_redis("FLUSHALL"),
            "Redis clients ended": lambda: self._ask_redis("CLIENT", "KILL", "TYPE", "normal"),
            "worker killed": lambda: self._signal_worker(signal.SIGKILL),
            "worker stopped beyond its lease": self._stop_worker,
        }
        # Each kind once, and then by chance.
        first = self._chance.sample(list(faults), len(faults))
        for number in itertools.count():
            if self._over.wait(self._chance.uniform(0.5, 1.5) * FAULT_SECONDS):
                return
            name = first[number] if number < len(first) else self._chance.choice(list(faults))
            with contextlib.suppress(psycopg.OperationalError, OSError, StopIteration):
                faults[name]()
                self.samples.faults.append((time.monotonic() - began, name))

    def _ask(self, query: LiteralString) -> Any:
        with closing(self._admin()) as admin:
            return admin.execute(query).fetchall()

    def _ask_redis(self, *command: str) -> None:
        client: Any = connect_sync(self._redis_url, reply_seconds=5)
        with closing(client):
            client.execute_command(*command)

    def _kill_backend(self) -> None:
        [(pid,)] = self._ask(A_CLIENT)
        os.kill(int(pid), signal.SIGKILL)

    def _signal_worker(self, number: int) -> int:
        """To the process that runs the jobs: `up` starts it again if it is gone."""
        worker = next(pid for pid in descendants(self._up.pid) if self._app in _command(pid))
        os.kill(worker, number)
        return worker

    def _stop_worker(self) -> None:
        worker = self._signal_worker(signal.SIGSTOP)
        try:
            self._over.wait(40)
        finally:
            os.kill(worker, signal.SIGCONT)

    def _sample(self, at: float) -> None:
        groups: dict[str, list[int]] = {"ours": [], "postgres": [], "valkey": []}
        for pid in [self._up.pid, *descendants(self._up.pid)]:
            command = _command(pid)
            kind = next(
                (name for name in ("postgres", "valkey") if name in command.partition(" ")[0]), "ours"
            )
            groups[kind].append(pid)
        with closing(self._admin()) as admin:
            sizes = admin.execute(SIZES).fetchall()
            [(connections,)] = admin.execute(
                "select count(*) from pg_stat_activity where backend_type = 'client backend'"
            ).fetchall()
        latencies, self._latencies = sorted(self._latencies), []
        p95 = latencies[int(len(latencies) * 0.95)] if latencies else LATENCY_SECONDS_MAX * 1000
        dead, live = sum(row[2] for row in sizes), sum(row[3] for row in sizes)
        self.samples.add(
            at,
            {
                "memory of our processes, MB": sum(map(_own_megabytes, groups["ours"])),
                "memory of PostgreSQL, MB": sum(map(_own_megabytes, groups["postgres"])),
                "memory of Valkey, MB": sum(map(_own_megabytes, groups["valkey"])),
                "file descriptors of our processes": sum(map(_descriptors, groups["ours"])),
                "connections to PostgreSQL": float(connections),
                "p95 of a job, ms": p95,
                "kernel tables, MB": float(sum(row[1] for row in sizes)),
                "dead rows, per live row": dead / max(1, live),
            },
            {str(name): float(megabytes) for name, megabytes, _, _ in sizes},
        )


@contextmanager
def _running(
    command: Sequence[str], environment: Mapping[str, str], log: IO[str]
) -> Generator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log)
    drain: threading.Thread | None = None
    try:
        yield process
    finally:
        if process.stdout is not None:
            # A full pipe would keep it from ending.
            drain = threading.Thread(target=process.stdout.read, daemon=True)
            drain.start()
        process.send_signal(signal.SIGINT)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _own_megabytes(pid: int) -> float:
    """Its own memory: a page of PostgreSQL's buffers that only one process has touched is not."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Anonymous:")) / 1024


def _descriptors(pid: int) -> float:
    try:
        return float(len(list(Path(f"/proc/{pid}/fd").iterdir())))
    except OSError:
        return 0.0


def report_of(soak: Soak, hours: float) -> tuple[Report, list[Growth]]:
    samples = soak.samples
    figures = [growth_of(name, samples.series[name], bound) for name, bound in BOUNDS.items()]
    grown = growing_tables(samples)
    rows = [
        {
            "figure": one.name,
            "early": round(one.early, 2),
            "late": round(one.late, 2),
            "limit": round(one.limit, 2),
        }
        for one in figures
    ]
    goals = [Goal(one.name, one.late, one.limit, at_most=True) for one in figures]
    goals.append(Goal("tables that grow", float(len(grown)), 0.0, at_most=True))
    goals.append(Goal("jobs that took more than a minute", float(soak.finished_late), 0.0, at_most=True))
    facts = machine(
        hours=hours,
        jobs=soak.submitted,
        jobs_per_second=round(soak.rate, 1),
        faults=len(samples.faults),
        tables_that_grow=", ".join(f"{one.name} {one.early:.1f} to {one.late:.1f} MB" for one in grown)
        or "none",
    )
    return Report("soak", hours < 1, cast("Any", rows), goals, facts), figures


@contextmanager
def own_directory() -> Generator[Path]:
    """The directory of a soak's data, which is removed at the end."""
    directory = Path(tempfile.mkdtemp(prefix="fencepost-soak-"))
    # The servers run as a user of their own where this one is root.
    directory.chmod(0o755)
    try:
        yield directory / "data"
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("--hours", type=float, default=8.0)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args(arguments)
    if not 0.01 <= asked.hours <= 1000:
        parser.error("--hours must be between 0.01 and 1000")
    console = Console()
    console.print(f"{asked.hours:g} h from {datetime.now(UTC):%H:%M} UTC, seed {asked.seed}.")
    with own_directory() as directory:
        soak = Soak(directory, asked.seed)
        soak.run(asked.hours * 3600)
    report, figures = report_of(soak, asked.hours)
    show(report, console)
    write(report)
    drawn = DIRECTORY / "soak.svg"
    drawn.write_text(picture(soak.samples.times, soak.samples.series, soak.samples.faults, figures))
    console.print(f"picture: {drawn}", highlight=False)
    return 0 if all(goal.met for goal in report.goals) else 1


if __name__ == "__main__":
    raise SystemExit(main())
