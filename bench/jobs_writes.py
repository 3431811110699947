"""Jobs whose handlers write a row of their own, and jobs with long payloads: what each way costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import as_file, files

from bench import jobs_measurements as contest
from bench.jobs_env import Entrant
from bench.pgbench import Pgbench
from bench.report import Goal, Row

CHUNK = 100
"""As `peers/run_fencepost.py` declares it."""
PGBENCH_CONNECTIONS = 8
PGBENCH_CALLS = 250
BLOCK = "fencepost, a row in the block of finish()"
WITH = "fencepost, a row by finish_with()"
IN_CHUNKS = f"fencepost, chunks of {CHUNK}, a row for each job"
PGBENCH = "pgbench: fence, row, finish in one transaction, without submit and claim"
LONG, SHORT = "fencepost, payload and result of 10 KB", "fencepost, payload and result of 100 bytes"
KINDS: Mapping[str, str] = {BLOCK: "write", WITH: "write_with", IN_CHUNKS: "chunk"}
PAYLOADS: Mapping[str, str] = {LONG: "bytes_10240", SHORT: "bytes_100"}

TIMES_THE_PEER_MIN = 2
CHUNKS_TIMES_THE_PEER_MIN = 15
SHARE_OF_PGBENCH_MIN = 0.6
TIMES_THE_SHORT_MAX = 4

CPU = ("with a write, worker CPU, µs/job", "with a write, PostgreSQL CPU, µs/job")

CLAIMED = """
select min(c.job_id) from fencepost.job_claim_by_priority('pgbench', 'pgbench', %(count)s, '1 hour') c
"""


def pgbench_rate(entrant: Entrant) -> float:
    """Transactions a second of pgbench that fence, write and finish, over jobs that were claimed before."""
    count = PGBENCH_CONNECTIONS * (PGBENCH_CALLS + 1)
    with entrant.database.connect_admin() as connection:
        connection.execute(
            "select count(*) from fencepost.job_submit_many('pgbench', 'kind',"
            " array_fill('{}'::jsonb, array[%s::integer]))",
            (count,),
        )
        [[first]] = connection.execute(CLAIMED, {"count": count}).fetchall()
    with as_file(files("bench").joinpath("scripts", "job_write.sql")) as script:
        return Pgbench(entrant.database).rate(
            script,
            connections=PGBENCH_CONNECTIONS,
            calls=PGBENCH_CALLS,
            variables={"i": -1, "first": first, "each": PGBENCH_CALLS + 1},
        )


def row(title: str, found: contest.Throughput) -> Row:
    return {
        "system": title,
        "truth": "PostgreSQL",
        "with a write, jobs/s": round(found.jobs_per_second),
        "with a write, worker CPU, µs/job": round(found.worker_us),
        "with a write, PostgreSQL CPU, µs/job": round(found.server_us),
        "with a write, commits/job": round(found.commits_per_job, 2),
    }


def bare_row(title: str, found: contest.Throughput) -> Row:
    return {
        "system": title,
        "truth": "PostgreSQL",
        "jobs/s": round(found.jobs_per_second),
        "worker CPU, µs/job": round(found.worker_us),
        "PostgreSQL CPU, µs/job": round(found.server_us),
    }


def rates(rows: Sequence[Row]) -> dict[str, float]:
    """What was measured, by title."""
    return {
        str(one["system"]): float(one[name])
        for one in rows
        for name in ("with a write, jobs/s", "jobs/s")
        if name in one
    }


def processor_us(rows: Sequence[Row]) -> dict[str, float]:
    """Microseconds of CPU time for each job, worker and PostgreSQL together, by title."""
    return {
        str(one["system"]): sum(float(one[name]) for name in CPU) for one in rows if set(CPU) <= one.keys()
    }


def goals(rows: Sequence[Row], peer: str | None) -> list[Goal]:
    """The goals; those beside a peer only if it was measured in the same turns."""
    found, used = rates(rows), processor_us(rows)
    beside = found.get(f"{peer} beside these")
    by_peer = (
        ()
        if beside is None
        else (
            Goal(f"a row by finish_with(), times {peer}", round(found[WITH] / beside, 2), TIMES_THE_PEER_MIN),
            Goal(
                f"chunks of {CHUNK}, times {peer}'s single writes",
                round(found[IN_CHUNKS] / beside, 1),
                CHUNKS_TIMES_THE_PEER_MIN,
            ),
            Goal(
                f"a row in the block of finish(), times {peer}",
                round(found[BLOCK] / beside, 2),
                TIMES_THE_PEER_MIN,
            ),
            *(
                Goal(
                    f"{how}: CPU time of {peer}, times ours",
                    round(used[f"{peer} beside these"] / ours, 2),
                    least,
                )
                for how, title, least in (
                    ("a row in the block of finish()", BLOCK, TIMES_THE_PEER_MIN),
                    ("a row by finish_with()", WITH, TIMES_THE_PEER_MIN),
                    (f"chunks of {CHUNK}", IN_CHUNKS, CHUNKS_TIMES_THE_PEER_MIN),
                )
                if (ours := used.get(title))
            ),
        )
    )
    return [
        *by_peer,
        Goal(
            "a row by finish_with(), share of pgbench",
            round(found[WITH] / found[PGBENCH], 2),
            SHARE_OF_PGBENCH_MIN,
        ),
        Goal(
            "a row in the block of finish(), share of pgbench",
            round(found[BLOCK] / found[PGBENCH], 2),
            SHARE_OF_PGBENCH_MIN,
        ),
        Goal(
            "cost of 10 KB against 100 bytes, times",
            round(found[SHORT] / found[LONG], 1),
            TIMES_THE_SHORT_MAX,
            at_most=True,
        ),
    ]
