"""One job that ends its process among many that do not, again and again, under real workers.

python -m tests.acceptance.jobs.poison_storm --rounds 100 --jobs 500
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fencepost.embedded import Database, PostgresServer, ValkeyServer
from fencepost.embedded._deadline import Deadline
from fencepost.kernel import job as kernel_job
from fencepost.kernel.drivers import run
from fencepost.kernel.migrate import migrate
from tests.tmp_dirs import server_directory
from tests.waiting_for import Waiter

ROOT = Path(__file__).parents[3]
APPLICATION = "tests.acceptance.jobs.poison_tasks"
COMMAND = "from fencepost.cli._app import main; main()"
KINDS = ("on the loop", "in a thread")
ENDS = ("exit", "segfault", "kill")
ROUND_SECONDS = 600.0
TRIES = 3


class WorkerProcesses:
    """`fencepost worker` processes; one that ended is started again at once."""

    def __init__(self, count: int, environment: dict[str, str], log: Path) -> None:
        self._environment = environment
        self._log = log.open("a")
        self._running = [self._start() for _ in range(count)]
        self.crashes = 0

    def keep_alive(self) -> None:
        for place, process in enumerate(self._running):
            if process.poll() is not None:
                self.crashes += 1
                self._running[place] = self._start()

    def close(self) -> None:
        for process in self._running:
            process.terminate()
        for process in self._running:
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._log.close()

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-c", COMMAND, "worker", APPLICATION, "--concurrency", "50"],
            cwd=ROOT,
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=self._log,
        )


@dataclass
class Round:
    """Jobs that were submitted together, one of them a poison."""

    kind: str
    how: str
    poison: int
    innocent: list[int]
    began_at: float = field(default_factory=time.monotonic)


class PoisonStorm:
    """Rounds of `jobs` jobs with one poison each; `figures` is what was seen."""

    def __init__(self, database: Database, redis_url: str | None, log: Path, *, lease_seconds: float) -> None:
        self._database = database
        self._lease_seconds = lease_seconds
        self._seen = Waiter(database)
        self._workers = WorkerProcesses(
            2,
            {name: value for name, value in os.environ.items() if name != "METRICS_PORT"}
            | {
                "DATABASE_URL": database.url,
                "REDIS_URL": redis_url or "",
                "JOBS_POLL_SEC": "0.1",
                "JOBS_RECLAIM_INTERVAL_SEC": "0.2",
                "POISON_LEASE_SEC": str(lease_seconds),
                "LOG_FORMAT": "json",
            },
            log,
        )
        self.rounds: list[dict[str, Any]] = []

    def close(self) -> None:
        self._workers.close()
        self._seen.close()

    def rage(self, rounds: int, jobs: int, seed: int, *, at_once: int = 1) -> None:
        """Keep `at_once` rounds open until so many have ended."""
        dice = random.Random(seed)  # noqa: S311 - Places of a test.
        open_rounds: list[Round] = []
        for number in range(rounds + at_once):
            if number < rounds:
                kind, how = KINDS[number % len(KINDS)], ENDS[number % len(ENDS)]
                open_rounds.append(self._begin(jobs, dice.randrange(jobs), kind, how, dice))
            while open_rounds and (len(open_rounds) >= at_once or number >= rounds):
                Deadline(ROUND_SECONDS, "a round has ended").wait(lambda: self._end_some(open_rounds))

    def _begin(self, jobs: int, place: int, kind: str, how: str, dice: random.Random) -> Round:
        # Long enough that a worker is full when the poison ends it.
        payloads: list[Any] = [{"linger": round(dice.uniform(0.01, 0.1), 3)} for _ in range(jobs)]
        payloads[place]["poison"] = how
        options = kernel_job.SubmitOptions(tries=TRIES, lease_seconds=self._lease_seconds)
        with self._database.connect() as connection:
            answers = run(connection, kernel_job.submit_many("storm", kind, payloads, options))
        job_ids = [answer.job_id for answer in answers]
        return Round(kind, how, job_ids.pop(place), job_ids)

    def _end_some(self, open_rounds: list[Round]) -> bool:
        """Tally the rounds that have ended; returns whether there were any."""
        self._workers.keep_alive()
        over = [one for one in open_rounds if self._is_over(one)]
        for one in over:
            open_rounds.remove(one)
            self.rounds.append(self._tally(one))
        return bool(over)

    def _tally(self, one: Round) -> dict[str, Any]:
        poison = one.poison
        [(state, status, tries, error)] = self._seen.rows(
            "select state, final_status, tries, error from fencepost.jobs where job_id = %s", (poison,)
        )
        innocent = self._seen.rows(
            "select state, tries, attempt from fencepost.jobs where job_id = any (%s)", (one.innocent,)
        )
        return {
            "kind": one.kind,
            "how": one.how,
            "seconds": round(time.monotonic() - one.began_at, 1),
            "poison": (state, status, tries),
            "error": error,
            "innocent_not_finished": sum(1 for state, _, _ in innocent if state != "finished"),
            "innocent_charged": sum(1 for _, tries, _ in innocent if tries > 1),
            "innocent_lost": sum(1 for _, _, attempt in innocent if attempt > 1),
            "innocent_attempts_max": max(attempt for _, _, attempt in innocent),
            "poison_losses": int(
                self._seen.rows(
                    "select count(*) from fencepost.events"
                    " where noun = 'job' and subject = %s and event = 'lost'",
                    (str(poison),),
                )[0][0]
            ),
        }

    def _is_over(self, one: Round) -> bool:
        [(left,)] = self._seen.rows(
            "select count(*) from fencepost.jobs"
            " where job_id = any (%s) and state in ('pending', 'dispatched', 'running')",
            ([one.poison, *one.innocent],),
        )
        return int(left) == 0

    def figures(self) -> dict[str, Any]:
        seconds = [one["seconds"] for one in self.rounds]
        return {
            "rounds": len(self.rounds),
            "poison_dead_within_its_tries": sum(
                1 for one in self.rounds if one["poison"] == ("dead", "worker_lost", TRIES)
            ),
            **{
                name: sum(one[name] for one in self.rounds)
                for name in ("innocent_not_finished", "innocent_charged", "innocent_lost", "poison_losses")
            },
            "innocent_attempts_max": max(one["innocent_attempts_max"] for one in self.rounds),
            "poison_losses_max": max(one["poison_losses"] for one in self.rounds),
            "worker_crashes": self._workers.crashes,
            "seconds_median": statistics.median(seconds),
            "seconds_max": max(seconds),
        }


@contextmanager
def poison_storm(lease_seconds: float, log: Path, *, redis: bool = True) -> Generator[PoisonStorm]:
    """A storm on servers of its own."""
    with (
        PostgresServer(server_directory(), settings={"fsync": "off"}, ephemeral=True) as postgres,
        ValkeyServer(server_directory(), ephemeral=True) as valkey,
    ):
        database = Database(postgres, "storm")
        database.create()
        migrate(database.admin_url)
        database.create_logins()
        storm = PoisonStorm(database, valkey.url if redis else None, log, lease_seconds=lease_seconds)
        try:
            yield storm
        finally:
            storm.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--at-once", type=int, default=1, help="rounds that are open at the same time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lease", type=float, default=3.0)
    parser.add_argument("--log", type=Path, default=Path(os.devnull))
    asked = parser.parse_args()
    with poison_storm(asked.lease, asked.log) as storm:
        storm.rage(asked.rounds, asked.jobs, asked.seed, at_once=asked.at_once)
        sys.stdout.write(json.dumps(storm.figures(), indent=2) + "\n")


if __name__ == "__main__":
    main()
