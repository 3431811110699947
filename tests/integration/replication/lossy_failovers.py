"""Failovers that lose commits, one after another, with and without the guard of the lineage.

    python -m tests.integration.replication.lossy_failovers --result docs/results/torture-lossy.json

A primary with an asynchronous standby. In each round a holder acquires a lease and is answered, the standby
has not heard of it, the primary ends, and the standby takes over. Then another holder acquires the lease.
Both print the same page, each in a transaction fenced by its token. There are two databases in the cluster:
in one the clients show their marks, in the other the question whether history was lost is always answered
with no. A page that is there twice is a doubled effect.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, LiteralString

import psycopg

from fencepost import Fencepost, FencepostError, Lease
from fencepost.embedded import Database, PostgresServer
from fencepost.kernel.migrate import migrate
from fencepost.settings import Settings
from tests.integration.replication.replicas import SETTINGS as SERVER_SETTINGS
from tests.integration.replication.replicas import standby_of
from tests.tmp_dirs import server_directory

HOUR = timedelta(hours=1)
GUARDED, UNGUARDED = "shop", "unguarded"
SETTINGS = Settings(pool_min=0, pool_max=2)
PAGES: LiteralString = """
    create table page (round int not null, printer text not null, token bigint not null);
    grant select, insert on page to fencepost_app
"""
# The planted bug: it is not checked whether the database has all that it ever answered.
NO_GUARD: LiteralString = """
    create or replace function fencepost.lineage_check(p_mark text, p_recover boolean)
    returns table (state text, mark text, epoch bigint, evidence jsonb)
    language sql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
    as $$ select 'in_order', null::text, 1::bigint, null::jsonb $$
"""
RAISED: LiteralString = "select count(*) from fencepost.event where event = 'epoch_raised'"
DOUBLED: LiteralString = "select count(*) from (select from page group by round having count(*) > 1) doubled"


@dataclass
class Outcome:
    """What happened in one of the databases, over all rounds."""

    rounds: int = 0
    tokens_issued_twice: int = 0
    refused: int = 0
    """Writes with a token of the lost time that were refused."""
    doubled: int = 0
    printed: int = 0
    epochs_raised: int = 0


async def run_rounds(rounds: int, directory: Path) -> tuple[dict[str, Outcome], list[float]]:
    """Run them in a cluster of its own. Also the seconds from the end of each primary to the first claim."""
    outcomes = {GUARDED: Outcome(), UNGUARDED: Outcome()}
    seconds: list[float] = []
    first = PostgresServer(directory / "0", settings=SERVER_SETTINGS)
    primary = first
    try:
        await _prepare(first.start())
        for number in range(1, rounds + 1):
            primary = await _round(number, primary, directory, outcomes, seconds)
        for name, outcome in outcomes.items():
            _count(Database(primary, name), outcome)
    finally:
        if primary.running:
            primary.kill()
    return outcomes, seconds


def _count(database: Database, outcome: Outcome) -> None:
    with closing(database.connect_admin()) as admin:
        [(outcome.doubled,)] = admin.execute(DOUBLED).fetchall()
        [(outcome.printed,)] = admin.execute("select count(distinct round) from page").fetchall()
        [(outcome.epochs_raised,)] = admin.execute(RAISED).fetchall()


async def _prepare(server: PostgresServer) -> None:
    database = Database(server, GUARDED)
    database.create()
    migrate(database.admin_url)
    database.create_logins()
    with closing(database.connect_admin()) as admin:
        admin.execute(PAGES)
    unguarded = Database(server, UNGUARDED)
    unguarded.create(template=database.name)
    with closing(unguarded.connect_admin()) as admin:
        admin.execute("set role fencepost_owner")
        admin.execute(NO_GUARD)
    for each in (database, unguarded):
        # A database that no client has used yet has no history to compare with.
        async with Fencepost(each.url, settings=SETTINGS) as fp:
            await fp.leases.release(await fp.leases.acquire("printer", ttl=HOUR, owner="first/0"))


async def _round(
    number: int,
    primary: PostgresServer,
    directory: Path,
    outcomes: dict[str, Outcome],
    seconds: list[float],
) -> PostgresServer:
    # It is not started before the primary is gone: it hears of nothing that comes now.
    standby = await asyncio.to_thread(standby_of, primary, directory / str(number))
    held: dict[str, Lease] = {}
    for name in outcomes:
        async with Fencepost(Database(primary, name).url, settings=SETTINGS) as fp:
            held[name] = await fp.leases.acquire("printer", ttl=HOUR, owner=f"lost/{number}")
    primary.kill()
    shutil.rmtree(primary.directory)
    began = time.monotonic()
    await asyncio.to_thread(standby.start)
    with psycopg.connect(standby.url(), autocommit=True) as admin:
        admin.execute("select pg_promote()")
    for name, outcome in outcomes.items():
        async with Fencepost(Database(standby, name).url, settings=SETTINGS) as fp:
            next_one = await fp.leases.acquire("printer", ttl=HOUR, owner=f"next/{number}")
            if name == GUARDED:
                seconds.append(time.monotonic() - began)
            outcome.rounds += 1
            outcome.tokens_issued_twice += next_one.token == held[name].token
            # Its holder did not notice anything: it is still about to print.
            for lease in (held[name], next_one):
                outcome.refused += not await _print(fp, number, lease)
            await fp.leases.release(next_one)
    return standby


async def _print(fp: Fencepost, number: int, lease: Lease) -> bool:
    """Print the page of the round, once for each token: whether it was not refused."""
    try:
        async with fp.transaction() as tx:
            await fp.leases.fence(tx, lease)
            await tx.execute("insert into page values (%s, %s, %s)", (number, lease.owner, lease.token))
    except FencepostError:
        return False
    return True


def facts(outcomes: dict[str, Outcome], seconds: Sequence[float], before: dict[str, Any]) -> dict[str, Any]:
    """The figures of these rounds and of those before them."""
    rows: list[dict[str, Any]] = []
    for number, (name, outcome) in enumerate(outcomes.items()):
        counts = {
            "lossy failovers": outcome.rounds,
            "tokens issued twice": outcome.tokens_issued_twice,
            "late writes refused": outcome.refused,
            "pages": outcome.printed,
            "doubled effects": outcome.doubled,
            "epochs raised": outcome.epochs_raised,
        }
        earlier: dict[str, Any] = before["rows"][number] if before else {}
        summed = {what: count + earlier.get(what, 0) for what, count in counts.items()}
        rows.append({"guard": "yes" if name == GUARDED else "no", **summed})
    ordered = sorted([*before.get("first_claim_seconds", []), *(round(each, 2) for each in seconds)])
    middle, late = ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.95)]
    return {
        "name": "torture-lossy",
        "at": datetime.now(UTC).date().isoformat(),
        "quick": False,
        "command": "python -m tests.integration.replication.lossy_failovers",
        "took": f"from the end of the primary to the first claim {middle} s in the median, {late} s at p95",
        "machine": {"cores": os.cpu_count(), "load": round(os.getloadavg()[0])},
        "rows": rows,
        "goals": [],
        "first_claim_seconds": ordered,
    }


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--rounds", type=int, default=50)
    options.add_argument("--result", type=Path, help="adds to the rounds that this file has")
    asked = options.parse_args()
    result: Path | None = asked.result
    before: dict[str, Any] = json.loads(result.read_text()) if result is not None and result.exists() else {}
    with own_directory() as directory:
        told = facts(*asyncio.run(run_rounds(asked.rounds, directory)), before)
    text = json.dumps(told, indent=1)
    sys.stdout.write(text + "\n")
    if result is not None:
        result.write_text(text + "\n")


@contextmanager
def own_directory() -> Generator[Path]:
    directory = server_directory()
    directory.mkdir(parents=True, exist_ok=True)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
