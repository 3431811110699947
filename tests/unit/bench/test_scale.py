"""The model of the scale: which limit comes first."""

import pytest

from bench.scale import LARGE, Cost, Counters, first_limit, model

COST = Cost("jobs", per_second=100, commits=2, wal_kb=10, table_kb=4, commands=3, cpu_ms=5)


def test_a_cost_is_what_was_counted_for_each_effect_between_two_moments() -> None:
    first = Counters(0.0, 100, 1000, 0, 10_240, 50, 1.0)
    last = Counters(10.0, 300, 1400, 2_048_000, 215_040, 650, 2.0)
    assert Cost.between("jobs", first, last) == Cost("jobs", 20, 2, 10, 1, 3, 5)


def test_tables_that_retention_made_smaller_cost_nothing() -> None:
    first, last = Counters(0, 0, 0, 0, 9999, 0, 0), Counters(1, 1, 0, 0, 0, 0, 0)
    assert Cost.between("jobs", first, last).table_kb == 0


@pytest.mark.parametrize(
    ("cost", "limit"),
    [
        (COST, "processor"),
        (Cost("a", 100, 1000, 1, 1, 1, 0.1), "commits"),
        (Cost("a", 100, 1, 10_000, 1, 1, 0.1), "WAL"),
        (Cost("a", 100, 1, 1, 1, 1000, 0.1), "Redis"),
    ],
)
def test_the_resource_that_is_used_most_is_the_first_limit(cost: Cost, limit: str) -> None:
    assert first_limit(cost, 10, LARGE)[0] == limit


def test_the_model_names_a_remedy_where_a_large_server_is_too_small() -> None:
    ten, hundred = model([COST, Cost("big", 10_000, 2, 10, 4, 3, 5)])[:2]
    assert (ten["cores"], ten["remedy"], hundred["cores"]) == (5.0, "none needed", 50.0)
    assert "several clusters" in str(model([Cost("big", 10_000, 2, 10, 4, 3, 5)])[1]["remedy"])
