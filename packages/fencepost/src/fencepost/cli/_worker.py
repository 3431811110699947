"""`fencepost worker`: run the jobs of an application."""

from __future__ import annotations

from typing import Annotated

import typer

from fencepost.cli.terminal import JsonOption


def worker(
    target: Annotated[
        str,
        typer.Argument(
            metavar="MODULE",
            help="Where the Fencepost value is: shop.tasks:fp. The attribute is needed if there are several.",
        ),
    ],
    queues: Annotated[
        str | None,
        typer.Option(
            "--queues", help="Only these queues, with commas between them.", metavar="A,B", show_default=False
        ),
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(
            "--concurrency",
            min=1,
            max=10_000,
            help="Jobs at once in a process.",
            show_default="JOBS_CONCURRENCY",
        ),
    ] = None,
    processes: Annotated[int, typer.Option("--processes", min=1, max=256, help="Worker processes.")] = 1,
    jobs_max: Annotated[
        int | None,
        typer.Option(
            "--max-jobs-per-process",
            min=1,
            help="Jobs after which a process drains and ends; with --processes it is started again.",
            show_default="JOBS_MAX_JOBS_PER_PROCESS",
        ),
    ] = None,
    only_suspects: Annotated[str | None, typer.Option("--only-suspects", hidden=True)] = None,
    json_output: JsonOption = False,
) -> None:
    """Run the jobs of an application, until Ctrl-C.

    \b
    The module is imported from this directory, or from Python's path. The worker runs every job that its
    Fencepost declares, fires its schedules, and reclaims jobs that other workers have lost. Any number of
    workers may run, on any number of machines.

    \b
    Ctrl-C or SIGTERM drains: no more jobs are claimed, running jobs may finish (JOBS_DRAIN_SEC), and those
    that do not are given back without a lost try. A second one exits at once; the jobs then return when
    their leases expire.

    \b
    Examples:
      fencepost worker shop.tasks
      fencepost worker shop.tasks:fp --queues mail,reports --concurrency 20
      fencepost worker shop.tasks --processes 4          one for each core; one that ends is started again
      fencepost worker shop.tasks --json | head -1       one line that says what it serves

    Settings: JOBS_CONCURRENCY, JOBS_LEASE_SEC, JOBS_DRAIN_SEC, METRICS_PORT; all in docs/reference/jobs.md.
    """
    chosen = [queue.strip() for queue in (queues or "").split(",") if queue.strip()]
    if processes == 1:
        from fencepost.cli._worker_process import work  # noqa: PLC0415 - Slow to load.

        work(
            target,
            queues=chosen,
            concurrency=concurrency,
            jobs_max=jobs_max,
            as_json=json_output,
            only_suspects=only_suspects,
        )
        return
    from fencepost.cli._supervisor import lead, worker_arguments  # noqa: PLC0415 - As above.

    arguments = worker_arguments(target, chosen, concurrency)
    arguments += [] if jobs_max is None else ["--max-jobs-per-process", str(jobs_max)]
    lead(arguments, target, processes, as_json=json_output)
