"""A system with something on every page: the crowd of the kernel, and every service beside it."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fencepost.client import Fencepost
from fencepost.embedded import Database
from fencepost.flows import Flow, IterableSource, ListSink
from fencepost.flows import _dead_letters as dead_letters
from fencepost.flows import _flow_store as flow_store
from fencepost.flows._plan import FlowPlan
from fencepost.flows._record import Failure
from fencepost.kernel import lease, schedule
from fencepost.kernel.drivers import run
from fencepost.kernel.job import Submission, SubmitOptions
from fencepost.webhooks import calls as webhooks
from fencepost_orders import operator_calls
from fencepost_orders._order_source import Outcome
from fencepost_players.requests import CreatePlayer, GrantItems, ItemGrant
from fencepost_players.service import Players
from tests.integration.console.watchers import OWNER, Watchers
from tests.integration.kernel import job_calls, workflow_calls
from tests.integration.kernel.caller import Caller
from tests.integration.nonces.operator import CHAIN, LONG, SIGNER, NonceOperator
from tests.integration.orders.env import BROKER, OrdersEnv
from tests.integration.players import env

FLOW = Flow("shop-1").source(IterableSource([])).map(int).sink(ListSink())
ACTIVITY = {
    "edges": {"0-1": 1500.0},
    "lag": {"values:0": 7},
    "busy": 0.25,
    "blocked": None,
    "reads": ["values"],
}
SUBMIT = "select fencepost.nonce_tx_submit(%s, %s, %s, 'digest', %s, 5, '', 21000)"
REPORT = {
    "name": "kernel",
    "goals": [
        {"name": "claims", "measured": 1.5, "goal": 1.0, "met": True, "at_most": False},
        # What costs less than nothing was a quiet moment; it is drawn all the same.
        {"name": "what it costs", "measured": -0.07, "goal": 0.15, "met": True, "at_most": True},
    ],
    "rows": [{"what": "claim", "a second": 1000}],
    "machine": {"cores": 2},
    "at": "2030-01-01T12:00:00+00:00",
    "quick": False,
}

TORTURE = {
    "name": "torture, seed 7",
    "verdict": "violated",
    "void_because": ["9 faults that hit, at least 13 were needed"],
    "violations": [{"system": "jobs", "rule": "doubled", "key": "7", "what": "two effects of one job"}],
    "replay": "fencepost torture --seed 7",
    "goals": [{"name": "violations", "measured": 1.0, "goal": 0.0, "met": False, "at_most": True}],
    "rows": [],
    "faults_by_kind": {"kill": 3, "crash": 9},
    "refusals_by_reason": {"stale_attempt": 2},
    "crash_points": {"jobs.ack.before": 9},
}


class PopulatedSystem(Watchers):
    """Besides the crowd: orders in every state, players, a signer that recovers, and a flow that fails."""

    def __init__(self, database: Database, name: str = "mail") -> None:
        super().__init__(database, name)
        self.flow = f"flow-{name}"
        self.parked = self.park()
        self.orders = self._trade()
        # In a thread of its own: this one may belong to a browser's event loop.
        with ThreadPoolExecutor(1) as thread:
            thread.submit(lambda: asyncio.run(self._play())).result()
        self._sign()
        self._flow()
        self._schedule()
        self._take_over()
        self._come_late()
        self.workflow = self._workflow()
        self.dead_workflow = self._dead_workflow()
        self.batch = self._batch()

    def _trade(self) -> dict[str, int]:
        with closing(OrdersEnv(self._database.url)) as market:
            market.declare(rate_per_second=1e6, burst=1e6)
            made: dict[str, int] = {}
            outcomes: list[Outcome] = ["sent", "dead", "failed", "unknown", "parked"]
            for number, outcome in enumerate(outcomes):
                made[outcome] = market.accepted(f"order-{outcome}", symbol=f"S{number}")
                how: dict[str, Any] = {"fate": "none"} if outcome in {"dead", "failed"} else {}
                if outcome == "failed":
                    how["delay_seconds"] = 3600
                market.settle(market.take_one(), outcome, code="UNKNOWN", detail="no word", **how)
            made["queued"] = market.accepted("order-queued", symbol="Q")
            market.run(operator_calls.halt(BROKER, None, "anna", "the market is shut"))
            # Without the topic: the figures of the outbox are those of the crowd.
            market.run(webhooks.add("audit", "https://audit.example/in", [], "anna"))
        return made

    async def _play(self) -> None:
        async with Fencepost(self._database.url) as fp:
            players = Players(fp)
            await env.load(fp)
            await players.run(CreatePlayer(player_id="p1"), request_id="r1")
            grant = GrantItems(
                player_id="p1", items=(ItemGrant(item="potion", count=3),), resources={"gold": 7}
            )
            await players.run(grant, request_id="r2")
            await players.close()

    def _sign(self) -> None:
        caller = Caller(self._database.url)
        with closing(caller.connection):
            node = NonceOperator(caller, OWNER, ttl=LONG)
            node.acquire()
            first, second, _ = node.reserve("n1", "n2", "n3")
            node.used(first, tx_hash="0x" + "12" * 32)
            node.recyclable(second)
            caller.execute(SUBMIT, CHAIN, SIGNER, "t1", "0x" + "cd" * 20)
        with self._database.connect_admin() as connection:
            connection.execute("select fencepost._recover_nonces('anna')")
        self.signer = f"{CHAIN}/{SIGNER}"

    def _flow(self) -> None:
        with self._database.connect_admin() as connection:
            edition = run(connection, flow_store.register(self.flow, FlowPlan(FLOW).picture(), OWNER))
            held = run(connection, lease.acquire(f"flow:{self.flow}/part/values:0", OWNER, 3600))
            other = run(connection, lease.acquire(f"flow:{self.flow}/part/values:1", OWNER, 3600))
            at, token = held.resource, held.token
            frontier = {"values:0": {"at": 7, "watermark": None, "ended": False, "count": 7}}
            commit = flow_store.commit(
                at, token, expected=None, frontier=frontier, state=b"s", whole=True, edition=edition
            )
            run(connection, commit)
            failing = {"error": "ConnectionError: the sink is away", "failures": 3}
            run(
                connection, flow_store.report([(at, token, ACTIVITY), (other.resource, other.token, failing)])
            )
            letters = [Failure(b"x", "ValueError: no number", "map-1")]
            run(connection, dead_letters.bury(self.flow, "unreadable", at, token, letters))
            run(connection, flow_store.save(self.flow, "before-friday"))

    def _schedule(self) -> None:
        declared = schedule.Declaration(
            name="nightly",
            expression="0 3 * * *",
            zone="UTC",
            missed="skip",
            grace_seconds=60,
            job=Submission(
                queue=self.name, kind=self.name, payload={}, options=SubmitOptions(tries=3, lease_seconds=30)
            ),
        )
        with self._database.connect() as connection:
            run(connection, schedule.add(declared, datetime(2130, 1, 1, tzinfo=UTC), "alice"))

    def _take_over(self) -> None:
        """A lease that has run out belongs to another owner."""
        with self._database.connect_admin() as connection:
            run(connection, lease.acquire("signer:old", "worker@gone#1", 60))
            connection.execute(
                "update fencepost.lease set acquired_at = acquired_at - interval '1 hour',"
                " renewed_at = renewed_at - interval '1 hour', expires_at = expires_at - interval '1 hour'"
                " where resource = 'signer:old'"
            )
            run(connection, lease.acquire("signer:old", OWNER, 3600))

    def _come_late(self) -> None:
        """A plural form writes its refusals down itself."""
        late = "select * from fencepost.job_finish_many(%s, %s, %s, array['ok'], array[null]::jsonb[])"
        self._call(late, [self.running], [0], self.name)

    def _workflow(self) -> int:
        """It has priced, slept, failed once, spawned children, was refused a step, and waits."""
        caller = Caller(self._database.url)
        with closing(caller.connection):
            job_id = workflow_calls.running(caller)
            workflow_calls.step(caller, job_id, "price", result={"cents": 500, "of": self.name})
            workflow_calls.sleep(caller, job_id, "night", "0 seconds")
            job_calls.claim(caller, job_id)
            fail(caller, job_id, 2, self.name)
            job_calls.claim(caller, job_id)
            child = job_calls.submit(caller, queue=f"of-{job_id}")
            caller.execute(
                "select fencepost.workflow_spawn(%s, 3, %s, 'parts', 'd', array[%s]::bigint[])",
                job_id,
                job_calls.OWNER,
                child,
            )
            workflow_calls.step(caller, job_id, f"reserve {self.name}", attempt=3, undo=workflow_calls.UNDO)
            caller.execute(
                "select * from fencepost.step_commit_many(array[%s]::bigint[], array[1]::bigint[], %s,"
                " array['late'], array['d'])",
                job_id,
                job_calls.OWNER,
            )
            event = f"approve {job_id} {self.name}"
            workflow_calls.wait_for(caller, job_id, event, attempt=3, timeout="2 days")
        return job_id

    def _batch(self) -> int:
        """Two jobs wait for their end, and a callback for theirs."""
        caller = Caller(self._database.url)
        with closing(caller.connection):
            jobs = [job_calls.submit(caller, queue=f"pages-{self.name}") for _ in "123"]
            row = caller.row(
                "select fencepost.batch_make(%s::bigint[], %s, %s) as batch", jobs[:2], jobs[2], self.name
            )
        return int(row["batch"])

    def _dead_workflow(self) -> int:
        """It has died, and the undo of its step waits."""
        caller = Caller(self._database.url)
        with closing(caller.connection):
            job_id = workflow_calls.running(caller, tries_max=1)
            workflow_calls.step(caller, job_id, "price", result=5)
            workflow_calls.step(caller, job_id, "reserve", undo=workflow_calls.UNDO)
            fail(caller, job_id, 1, self.name)
        return job_id


def fail(caller: Caller, job_id: int, attempt: int, name: str) -> None:
    """As a worker leaves a try that failed, due again at once."""
    caller.execute(
        "select * from fencepost.job_leave_many(array[%s]::bigint[], array[%s]::bigint[], %s, array['retry'],"
        " array['ValueError: no'], array[interval '0'], array[%s])",
        job_id,
        attempt,
        job_calls.OWNER,
        f"Traceback (most recent call last):\n  in {name}\nValueError: no",
    )


def leave_a_report(folder: Path) -> None:
    """As `make bench` leaves one, and `make torture`."""
    for path, report in (("bench/kernel.json", REPORT), ("torture/last.json", TORTURE)):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(json.dumps(report))
