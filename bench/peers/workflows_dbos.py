# mypy: ignore-errors
# pyright: basic, reportMissingImports=false
# The packages it imports are those of an environment of its own, which the checkers here do not see.
"""Workflows of DBOS: steps, and transaction steps for a row of their own."""

from __future__ import annotations

import time

import run_dbos
from dbos import DBOS, SQLAlchemyDatasource
from handlers import ALLOWED_SECONDS
from run_dbos import CONCURRENCY, QUEUE, WRITE, DbosPeer
from runner import STEPS, PeerTask, play


def _launch(order: PeerTask) -> None:
    """The version and the executor are named, so that a second process recovers what the first has begun."""
    DBOS(
        config={
            "name": "bench",
            "system_database_url": order.postgres_url,
            "application_version": "1",
            "executor_id": "local",
            "log_level": "ERROR",
            "sys_db_pool_size": 20,
        }
    )
    source = SQLAlchemyDatasource.create(order.postgres_url, engine_kwargs={"pool_size": 20})
    results, who = order.results, order.worker

    @source.transaction()
    def write(step: int) -> None:
        source.sql_session().execute(WRITE, {"job": f"step {step}", "who": who})

    @DBOS.step()
    def nothing(step: int) -> int:
        return step

    @source.transaction()
    def write_late() -> None:
        results.act(who, "started")
        while not results.is_allowed(who):
            time.sleep(ALLOWED_SECONDS)
        source.sql_session().execute(WRITE, {"job": "zombie", "who": who})

    @DBOS.workflow(name="rows")
    def rows() -> None:
        for step in range(STEPS):
            write(step)
        results.count()

    @DBOS.workflow(name="trivial")
    def trivial() -> None:
        for step in range(STEPS):
            nothing(step)
        results.count()

    @DBOS.workflow(name="zombie")
    def zombie() -> str:
        write_late()
        results.act(who, "wrote")
        return who

    DBOS.launch()
    DBOS.register_queue(QUEUE, worker_concurrency=CONCURRENCY, polling_interval_sec=0.01)


if __name__ == "__main__":
    run_dbos._launch = _launch
    play(DbosPeer())
