"""What a worker says of its own registration."""

import pytest
from prometheus_client import CollectorRegistry, Gauge

from fencepost.errors import ServerUnavailable
from fencepost_judge._discovery import (
    JudgeListing,
    ListedWorker,
    Load,
    Registration,
    WorkerInfo,
    worker_info,
)

LEASE_SECONDS = 15.0
INFO = worker_info("judge@here:1:a", {}, slots=2, sandbox="box", degraded=[])


class Away:
    """A directory that can be out of reach."""

    is_away = False

    async def enter(self, info: WorkerInfo) -> Registration:
        return Registration(info.owner, 1, 1)

    async def beat(self, registration: Registration, load: Load) -> None:
        if self.is_away:
            raise ServerUnavailable("gone")

    async def leave(self, registration: Registration) -> None:
        """Nothing to leave."""

    async def workers(self) -> list[ListedWorker]:
        return []


async def test_a_worker_is_listed_until_its_lease_has_run_out(monkeypatch: pytest.MonkeyPatch) -> None:
    now, directory = 100.0, Away()
    monkeypatch.setattr("fencepost_judge._discovery.time.monotonic", lambda: now)
    gauge = Gauge("listed", "Listed.", registry=CollectorRegistry())
    listing = JudgeListing(directory, INFO, lambda: Load(0, 0, 0.0), gauge, lease_seconds=LEASE_SECONDS)

    async def seen() -> float:
        if directory.is_away:
            with pytest.raises(ServerUnavailable):
                await listing.tick()
        else:
            await listing.tick()
        (sample,) = (sample for metric in gauge.collect() for sample in metric.samples)
        return sample.value

    values = [await seen()]
    directory.is_away = True
    now += LEASE_SECONDS - 1
    values.append(await seen())
    now += 1
    values.append(await seen())
    directory.is_away = False
    values.append(await seen())

    assert values == [1, 1, 0, 1]
