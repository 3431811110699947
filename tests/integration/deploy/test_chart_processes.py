"""Every command of the chart, run with its own arguments and variables on real servers, without a cluster: it
answers its probes, and ends within its grace when it is told, without charging a try."""

import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, LiteralString

import pytest

from fencepost.cli.exit_codes import ExitCode
from fencepost.embedded import Database
from tests.deployment import WHOLE_CHART, by_name, containers, find_helm, rendered
from tests.integration.deploy.deployed import TOKEN, Deployed
from tests.waiting_for import until

SETTINGS = (*WHOLE_CHART, "worker.application=app", "flows.applications.totals=app")
PROCESSES = ("x-api", "x-sender", "x-worker", "x-flow-totals", "x-judge")
JOB: LiteralString = "select job_id from fencepost.job_submit('mail', 'linger', %s::jsonb, p_tries_max => 1)"


@pytest.fixture(scope="module")
def helm() -> str:
    found = find_helm()
    if found is None:
        pytest.skip("helm is not installed, and its wheel is for Linux on x86-64 only")
    return found


def deployed(
    documents: list[dict[str, Any]], name: str, folder: Path, database: Database, redis_url: str
) -> Deployed:
    container = containers(documents)[name]
    return Deployed(container["args"], environment_of(container), folder, database, redis_url)


def environment_of(container: Mapping[str, Any]) -> dict[str, str]:
    """As the kubelet gives it: what a key of the Secret holds is a word of its own, or an address of ours."""
    return {
        one["name"]: str(one["value"]) if "value" in one else secret(one["valueFrom"]["secretKeyRef"])
        for one in container["env"]
    }


def secret(reference: Mapping[str, str]) -> str:
    return TOKEN if reference["key"] == "http-token" else f"the-{reference['key']}"


def grace_seconds(documents: list[dict[str, Any]], name: str) -> float:
    return float(
        by_name(documents)["Deployment", name]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    )


def test_the_commands_that_run_are_all_of_the_chart(helm: str) -> None:
    assert {*containers(rendered(helm, *SETTINGS))} == {*PROCESSES, "x-migrate"}


@pytest.mark.parametrize("name", PROCESSES)
async def test_a_process_answers_its_probes_and_ends_when_it_is_told(
    helm: str, name: str, tmp_path: Path, database: Database, redis_url: str
) -> None:
    documents = rendered(helm, *SETTINGS)
    container = containers(documents)[name]
    process_of = deployed(documents, name, tmp_path, database, redis_url)
    with process_of.running() as process:
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            path = container[probe]["httpGet"]["path"]

            def is_content(path: str = path) -> bool:
                assert process.poll() is None, process_of.log()
                return process_of.answers(path)

            await until(f"{probe} of {name} is answered", is_content)
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        grace = grace_seconds(documents, name)
        assert process.wait(grace) == ExitCode.OK, process_of.log()
        assert time.monotonic() - began < grace
        assert "Traceback" not in process_of.log()


async def test_the_migration_is_a_command_that_ends(
    helm: str, tmp_path: Path, database: Database, redis_url: str
) -> None:
    migration = deployed(rendered(helm, *SETTINGS), "x-migrate", tmp_path, database, redis_url)
    with migration.running() as process:
        assert process.wait(60) == ExitCode.OK, migration.log()


@pytest.mark.parametrize(
    ("seconds", "left"),
    [
        pytest.param(0.5, [], id="what ends in time is finished"),
        pytest.param(600, [0], id="the rest is put back"),
    ],
)
async def test_a_worker_of_the_chart_that_is_told_to_end_charges_no_try(
    helm: str, tmp_path: Path, database: Database, redis_url: str, seconds: float, left: list[int]
) -> None:
    drain = ("environment[0].name=JOBS_DRAIN_SEC", "environment[0].value=3")
    documents = rendered(helm, *SETTINGS, *drain)
    worker = deployed(documents, "x-worker", tmp_path, database, redis_url)
    with worker.running() as process, database.connect_admin() as admin:
        [(job,)] = admin.execute(JOB, (f'{{"seconds": {seconds}}}',)).fetchall()
        running = "select count(*) from fencepost.job_running where job_id = %s"

        def is_running() -> bool:
            assert process.poll() is None, worker.log()
            return admin.execute(running, (job,)).fetchone() == (1,)

        await until("the job runs", is_running)
        process.send_signal(signal.SIGTERM)
        assert process.wait(grace_seconds(documents, "x-worker")) == ExitCode.OK, worker.log()
        waiting = "select tries from fencepost.job_waiting where job_id = %s"
        assert [tries for (tries,) in admin.execute(waiting, (job,)).fetchall()] == left
        finished = "select state, tries from fencepost.job_finished where job_id = %s"
        ended = [] if left else [("finished", 1)]
        assert admin.execute(finished, (job,)).fetchall() == ended
