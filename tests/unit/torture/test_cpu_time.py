"""A busy machine is given more time, and a hanging system is not."""

import os

import pytest

from fencepost_torture._cpu_time import CpuTime, slowness


def test_a_second_of_an_idle_machine_is_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (0.1, 0.1, 0.1))

    assert slowness() == 1


def test_where_others_want_to_run_a_second_counts_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (8.0, 1.0, 1.0))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    clock = CpuTime()

    clock.sleep(0.02)

    assert slowness() == 4
    assert 0 < clock.seconds <= 0.01


def test_what_something_else_took_counts_less_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (8.0, 1.0, 1.0))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    clock = CpuTime()

    clock.count(10)
    clock.count(2)

    assert clock.seconds == 3
