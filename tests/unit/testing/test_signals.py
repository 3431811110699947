"""Named moments: nothing is missed, nothing is waited for too long."""

import asyncio
import threading

import pytest

from fencepost.signals import announce, ordered
from fencepost.testing import Signals


def test_an_announcement_without_a_listener_does_nothing() -> None:
    announce("worker.idle")


def test_what_was_announced_before_the_wait_counts() -> None:
    with Signals() as signals:
        announce("worker.claimed")
        signals.expect("worker.claimed", within=0)


async def test_the_wait_ends_with_the_announcement_that_completes_the_count() -> None:
    with Signals() as signals:
        waiting = asyncio.create_task(signals.wait("worker.claimed", count=2, within=60))
        announce("worker.claimed")
        await asyncio.sleep(0)
        assert not waiting.done()
        announce("worker.claimed")
        await waiting


async def test_less_than_the_count_is_not_enough() -> None:
    with Signals() as signals:
        announce("worker.claimed")
        with pytest.raises(TimeoutError, match=r"announced 1 times of 2"):
            await signals.wait("worker.claimed", count=2, within=0)
        with pytest.raises(TimeoutError, match=r"announced 1 times of 2"):
            signals.expect("worker.claimed", count=2, within=0)


async def test_a_thread_is_heard_by_an_event_loop() -> None:
    with Signals() as signals:
        threading.Thread(target=announce, args=("heartbeat.renewed",)).start()
        await signals.wait("heartbeat.renewed", within=60)


def test_a_thread_is_heard_by_a_test_without_an_event_loop() -> None:
    with Signals() as signals:
        threading.Timer(0.01, announce, args=("heartbeat.renewed",)).start()
        signals.expect("heartbeat.renewed", within=60)


async def test_a_wait_in_vain_says_what_was_heard_instead() -> None:
    with Signals() as signals:
        announce("worker.idle")
        with pytest.raises(
            TimeoutError, match=r"worker\.claimed was announced 0 times of 1\. Heard: worker\.idle 1"
        ):
            await signals.wait("worker.claimed", within=0.01)
        with pytest.raises(TimeoutError, match=r"worker\.claimed was announced 0 times of 1"):
            signals.expect("worker.claimed", within=0.01)


def test_nothing_is_heard_after_the_block() -> None:
    with Signals() as signals:
        pass
    announce("worker.idle")
    assert signals.heard("worker.idle") == 0


def test_another_process_is_heard_through_the_socket_in_its_environment() -> None:
    with Signals() as signals:
        (listener,) = ordered(signals.environment)
        for _ in range(100):
            listener("worker.claimed")
        signals.expect("worker.claimed", count=100, within=60)


def test_a_process_that_outlives_the_test_does_not_fail() -> None:
    with Signals() as signals:
        (listener,) = ordered(signals.environment)
    listener("worker.claimed")
