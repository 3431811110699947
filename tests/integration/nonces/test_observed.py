"""What an operator sees of a node: the figures and the lines of the log that the reference promises."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import pytest
import structlog

from fencepost.embedded import Database
from fencepost.signals import listening
from fencepost.testing import Clock
from fencepost_nonces._settings import NoncesSettings
from fencepost_nonces.node import Node
from tests.integration.nonces.env import ALICE, NoncesEnv, stand_still, town_on

LEASE_SECONDS = 30.0
RENEWED = "lease_renew_total"


@pytest.fixture
async def env(database: Database) -> AsyncGenerator[NoncesEnv]:
    async with town_on(database) as env:
        yield env


def counted(env: NoncesEnv, node: Node, name: str, **labels: str) -> float:
    sample = env.clients[node].metrics.registry.get_sample_value
    return sample(f"fencepost_nonces_{name}", labels) or 0.0


def told(said: list[Any], event: str) -> list[Mapping[str, Any]]:
    return [line for line in said if line["event"] == event]


async def renew_now(node: Node) -> None:
    """As the keeper's thread does when a third of the lease has passed."""
    await asyncio.to_thread(node._signer_leases.keeper.renew)  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize("mode", ["basic", "queue"])
async def test_the_life_of_a_lease_is_counted_and_told(env: NoncesEnv, clock: Clock, mode: str) -> None:
    settings = {"mode": mode, "lease_seconds": LEASE_SECONDS, "idle_seconds": 300}
    first, second = [await env.node(**settings) for _ in range(2)]
    for node in (first, second):
        # They stand still: every step of theirs is the test's.
        await stand_still(node)
    with structlog.testing.capture_logs() as said:
        (row,) = await first.reserve(ALICE, ["r1"])
        await renew_now(first)
        clock.advance(LEASE_SECONDS + 1)
        await second.reserve(ALICE, ["r2"])
        clock.advance(LEASE_SECONDS + 1)
        await first.mark_used(ALICE, row.nonce, row.hold)
        clock.advance(LEASE_SECONDS + 1)
        await renew_now(first)
        await first._signer_leases.keeper.close()  # pyright: ignore[reportPrivateUsage]

    assert counted(env, first, "lease_acquire_total", result="acquired", mode=mode) == 2
    assert counted(env, second, "lease_acquire_total", result="acquired", mode=mode) == 1
    assert counted(env, first, RENEWED, result="renewed", mode=mode) == 1
    assert counted(env, first, RENEWED, result="lost", mode=mode) == 1
    assert counted(env, first, "fence_reject_total", op="used") == 1
    assert counted(env, first, "queue_seconds_count") == (1 if mode == "queue" else 0)
    assert counted(env, first, "queue_depth") == 0
    acquired = told(said, "signer_acquired")
    assert [(line["signer"], line["owner_node"], line["fencing_token"]) for line in acquired] == [
        (ALICE.resource, first.owner, 1),
        (ALICE.resource, second.owner, 2),
        (ALICE.resource, first.owner, 3),
    ]
    assert all(line["expires_at"] for line in acquired)
    (rejected,) = told(said, "fenced_reject")
    assert rejected["signer"] == ALICE.resource
    assert (rejected["op"], rejected["provided_token"], rejected["seen_token"]) == ("used", 1, 2)
    assert (rejected["node"], rejected["seen_owner"]) == (first.owner, second.owner)
    (lost,) = told(said, "signer_lost")
    assert (lost["signer"], lost["fencing_token"]) == (ALICE.resource, 3)


async def test_a_caller_that_is_turned_down_is_counted_with_its_mode(env: NoncesEnv) -> None:
    holder = await env.node(lease_seconds=300, idle_seconds=300)
    await holder.reserve(ALICE, ["r1"])
    other = await env.node(lease_seconds=300)

    await other.reserve(ALICE, ["r2"])

    assert counted(env, other, "lease_acquire_total", result="not_owner", mode="basic") >= 1
    assert counted(env, other, "held_signers") == 1


async def test_a_node_whose_event_loop_is_blocked_keeps_its_signers(
    env: NoncesEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NoncesSettings, "renew_seconds", 0.01)
    node = await env.node(lease_seconds=300, idle_seconds=300)
    await node.reserve(ALICE, ["r1"])
    thrice = threading.Event()

    def heard(name: str) -> None:
        if name == "nonces.renewed" and counted(env, node, RENEWED, result="renewed", mode="basic") >= 3:
            thrice.set()

    with listening(heard):
        # It blocks the loop, as a handler with a bug does.
        assert thrice.wait(60)
