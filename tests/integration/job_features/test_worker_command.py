"""`fencepost worker`, as a process of its own: found, serving, drained, restarted, orphaned."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fencepost.cli.exit_codes import ExitCode
from fencepost.embedded import Database
from fencepost.embedded._deadline import Deadline
from fencepost.kernel import job as kernel_job
from fencepost.kernel.drivers import run
from tests.integration.job_features.probes import Probes

HAND_OVER = "from fencepost.cli._app import main; main()"
APPLICATION = "tests.integration.job_features.shop_tasks"
ROOT = Path(__file__).parents[3]
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(database: Database, redis_url: str) -> Iterator[Start]:
    """`start("worker", ...)`; whatever still runs at the end is killed."""
    started: list[subprocess.Popen[str]] = []
    environ = {name: value for name, value in os.environ.items() if name != "METRICS_PORT"}
    environ |= {
        "DATABASE_URL": database.url,
        "REDIS_URL": redis_url,
        "JOBS_POLL_SEC": "0.1",
        "JOBS_RECLAIM_INTERVAL_SEC": "0.2",
        "PYTHONUNBUFFERED": "1",
    }

    def begin(*arguments: str, **more: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", HAND_OVER, *arguments],
            cwd=ROOT,
            env=environ | more,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def announced(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate()[1]
    return dict(json.loads(line))


def end(process: subprocess.Popen[str], how: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
    process.send_signal(how)
    _, err = process.communicate(timeout=60)
    return process.returncode, err


def submit(database: Database, kind: str, queue: str, payload: Any) -> int:
    with database.connect() as connection:
        return run(connection, kernel_job.submit(queue, kind, payload)).job_id


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def until(probes: Probes, job_id: int, state: str) -> None:
    Deadline(60, f"job {job_id} is {state}").wait(lambda: probes.state(job_id) == state)


def test_a_worker_says_what_it_serves_and_runs_it(start: Start, database: Database, probes: Probes) -> None:
    worker = start("worker", f"{APPLICATION}:fp", "--json", "--concurrency", "7")
    told = announced(worker)
    assert (told["queues"], told["kinds"], told["schedules"], told["concurrency"]) == (
        ["mail", "reports"],
        ["send", "report", "slow"],
        ["send"],
        7,
    )
    job = submit(database, "report", "reports", {"n": 5})
    until(probes, job, "finished")
    assert probes.value("select result from fencepost.jobs where job_id = %s", job) == 25
    code, err = end(worker)
    assert code == ExitCode.OK
    assert "Draining" in err
    assert "Traceback" not in err


def test_only_the_queues_that_were_asked_for(start: Start, database: Database, probes: Probes) -> None:
    worker = start("worker", APPLICATION, "--queues", "mail", "--json")
    assert announced(worker)["queues"] == ["mail"]
    left = submit(database, "report", "reports", {"n": 5})
    done = submit(database, "send", "mail", {"to": "ann"})
    until(probes, done, "finished")
    assert probes.state(left) == "pending"
    assert end(worker)[0] == ExitCode.OK


def test_sigterm_lets_what_runs_end_and_takes_nothing_more(
    start: Start, database: Database, probes: Probes, tmp_path: Path
) -> None:
    begun, may_end = tmp_path / "begun", tmp_path / "may_end"
    worker = start("worker", APPLICATION, "--json")
    announced(worker)
    job = submit(database, "slow", "reports", {"begun": str(begun), "may_end": str(may_end)})
    Deadline(60, "the handler has begun").wait(begun.exists)
    worker.send_signal(signal.SIGTERM)
    assert worker.stderr is not None
    while "Draining" not in worker.stderr.readline():
        pass
    late = submit(database, "report", "reports", {"n": 1})
    may_end.touch()
    _, err = worker.communicate(timeout=60)
    assert (worker.returncode, "Stopped." in err) == (ExitCode.OK, True)
    assert probes.state(job) == "finished"
    assert probes.state(late) in ("pending", "dispatched")


def test_what_does_not_end_in_time_is_given_back_without_a_lost_try(
    start: Start, database: Database, probes: Probes, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    worker = start("worker", APPLICATION, "--json", JOBS_DRAIN_SEC="0.1")
    announced(worker)
    job = submit(database, "slow", "reports", {"begun": str(begun), "may_end": str(tmp_path / "never")})
    Deadline(60, "the handler has begun").wait(begun.exists)
    assert end(worker)[0] == ExitCode.OK
    # Pending, or driven once more by a last tick of the dispatcher.
    assert probes.rows("select tries, attempt from fencepost.job_waiting where job_id = %s", job) == [(0, 1)]


def test_processes_are_started_again_and_end_together(
    start: Start, database: Database, probes: Probes
) -> None:
    workers = start("worker", APPLICATION, "--processes", "2", "--json")
    first, second = announced(workers)["processes"]
    job = submit(database, "report", "reports", {"n": 2})
    until(probes, job, "finished")
    os.kill(first, signal.SIGKILL)
    assert workers.stderr is not None
    while "worker process ended" not in workers.stderr.readline():
        pass
    Deadline(60, "two workers have declared their schedules again").wait(
        lambda: len(children_of(workers.pid)) == 2 and first not in children_of(workers.pid)
    )
    job = submit(database, "report", "reports", {"n": 3})
    until(probes, job, "dead")
    code, err = end(workers)
    assert (code, "No process is left." in err) == (ExitCode.OK, True)
    assert not is_alive(second)


def test_a_process_that_has_run_its_jobs_is_replaced_at_once(
    start: Start, database: Database, probes: Probes
) -> None:
    workers = start(
        "worker",
        APPLICATION,
        "--processes",
        "2",
        "--concurrency",
        "1",
        "--max-jobs-per-process",
        "1",
        "--json",
    )
    announced(workers)
    jobs = [submit(database, "report", "reports", {"n": 10 + n}) for n in range(4)]
    for job in jobs:
        until(probes, job, "finished")
    owners = probes.column("select owner from fencepost.job_finished")
    assert len(set(owners)) == 4, "each process ran one job"
    code, err = end(workers)
    assert code == ExitCode.OK
    assert err.count("worker process replaced") >= 2
    assert "worker process ended" not in err


def test_a_process_that_was_stopped_from_outside_is_started_again_after_a_delay(
    start: Start, database: Database, probes: Probes
) -> None:
    workers = start("worker", APPLICATION, "--processes", "2", LOG_FORMAT="json")
    first, second = announced(workers)["processes"]
    job = submit(database, "report", "reports", {"n": 2})
    until(probes, job, "finished")
    os.kill(first, signal.SIGTERM)
    assert workers.stderr is not None
    while (line := json.loads(workers.stderr.readline())).get("event") != "worker process ended":
        assert line.get("event") != "worker process replaced"
    assert (line["pid"], line["exit_code"], line["again_in_seconds"]) == (first, 0, 0.5)
    Deadline(60, "another process runs in its place").wait(
        lambda: len(children_of(workers.pid)) == 2 and first not in children_of(workers.pid)
    )
    assert second in children_of(workers.pid)
    assert end(workers)[0] == ExitCode.OK


def children_of(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in listed.split()]


def test_a_killed_leader_leaves_no_worker(start: Start) -> None:
    workers = start("worker", APPLICATION, "--processes", "2", "--json")
    pids = announced(workers)["processes"]
    workers.kill()
    Deadline(60, "no worker is left").wait(lambda: not any(map(is_alive, pids)))


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("nowhere.tasks", "There is no module nowhere in"),
        (f"{APPLICATION}:nothing", f"has no nothing. Write one of {APPLICATION}:fp."),
        (f"{APPLICATION}:report", "is no Fencepost, but Handler"),
        ("json", "json has no Fencepost. Make one"),
        ("shop/tasks.py", "is a file; write its module: shop.tasks."),
    ],
)
def test_a_target_that_cannot_be_found_is_explained(start: Start, target: str, said: str) -> None:
    worker = start("worker", target)
    out, err = worker.communicate(timeout=60)
    assert (worker.returncode, out) == (ExitCode.USAGE, "")
    assert said in err
    assert "Traceback" not in err


def test_a_module_with_an_error_shows_where(start: Start, tmp_path: Path) -> None:
    (tmp_path / "broken_tasks.py").write_text("import no_such_library\n")
    worker = start("worker", "broken_tasks", PYTHONPATH=str(tmp_path))
    _, err = worker.communicate(timeout=60)
    assert worker.returncode == ExitCode.PROBLEM
    assert "broken_tasks.py" in err
    assert "broken_tasks cannot be imported: ModuleNotFoundError" in err


def test_an_unknown_queue_is_refused(start: Start) -> None:
    worker = start("worker", APPLICATION, "--queues", "post")
    _, err = worker.communicate(timeout=60)
    assert worker.returncode == ExitCode.PROBLEM
    assert "No handler serves post; there are mail, reports." in err


def test_up_runs_the_jobs_of_an_application(start: Start, database: Database, probes: Probes) -> None:
    up = start("up", "--app", APPLICATION, "--json")
    assert announced(up)["url"].startswith("http://")
    job = submit(database, "report", "reports", {"n": 4})
    until(probes, job, "finished")
    assert end(up, signal.SIGINT)[0] == ExitCode.OK
