"""The soak itself: what it samples, that a leak is seen, and that nothing grows in a fifth of an hour.

The short form is tests/unit/bench/test_soak.py: on a busy machine all services take minutes to start.
"""

import pytest

from bench.soak import BOUNDS, Soak, own_directory, report_of

LEAKS = "tests.integration.bench.leaking_app"
QUICK_SECONDS = 15
LEAK_SECONDS = 120
LONG_SECONDS = 0.2 * 3600
LEAKED = {"memory of our processes, MB", "file descriptors of our processes"}


def grown(soak: Soak, seconds: float) -> set[str]:
    """What the report of a soak says of each figure."""
    soak.run(seconds)
    report, figures = report_of(soak, seconds / 3600)
    assert {row["figure"] for row in report.rows} == {*BOUNDS}
    return {one.name for one in figures if not one.is_flat}


@pytest.mark.full
@pytest.mark.timeout(900)
def test_a_short_soak_samples_each_figure_under_load() -> None:
    with own_directory() as directory:
        soak = Soak(directory, seed=1, has_faults=False)
        grown(soak, QUICK_SECONDS)
    assert soak.rate > 0
    assert soak.finished_late == 0
    assert all(len(values) == len(soak.samples.times) for values in soak.samples.series.values())
    assert {"job", "event", "idempotency_key"} <= soak.samples.tables.keys()


@pytest.mark.full
@pytest.mark.timeout(900)
def test_a_planted_leak_of_memory_and_of_files_is_seen() -> None:
    with own_directory() as directory:
        soak = Soak(directory, seed=1, app=LEAKS, has_faults=False)
        assert grown(soak, LEAK_SECONDS) >= LEAKED


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_nothing_grows_in_a_fifth_of_an_hour_of_faults() -> None:
    with own_directory() as directory:
        soak = Soak(directory, seed=1)
        assert grown(soak, LONG_SECONDS) == set()
    assert {what for _, what in soak.samples.faults} >= {"worker killed", "Redis wiped", "connections ended"}
