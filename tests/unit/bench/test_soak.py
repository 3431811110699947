"""What a soak calls growth, and its picture."""

from xml.etree import ElementTree as Xml

import pytest

from bench.soak import Bound, Samples, growing_tables, growth_of
from bench.soak_picture import picture

BOUND = Bound(0.1, 1.0)
FLAT = [50.0, 20.0, *([10.0, 10.5] * 20)]


def test_the_warm_up_and_single_peaks_do_not_count() -> None:
    values = [*FLAT]
    values[-3] = 500.0
    growth = growth_of("memory", values, BOUND)
    assert growth.early == pytest.approx(10.25, abs=0.3)
    assert growth.is_flat


def test_a_figure_that_grows_all_the_time_is_found() -> None:
    growth = growth_of("memory", [100.0 + at for at in range(100)], BOUND)
    assert growth.late > growth.limit
    assert not growth.is_flat


def test_a_small_figure_may_grow_by_an_amount() -> None:
    assert growth_of("connections", [1.0] * 20 + [1.9] * 20, BOUND).is_flat


def test_only_tables_that_grow_are_named() -> None:
    samples = Samples()
    for at in range(100):
        samples.add(float(at), {}, {"job": 10.0, "event": 1.0 + at / 10, "lease": 0.1 + at / 1000})
    assert [one.name for one in growing_tables(samples)] == ["event"]


def test_the_picture_has_a_panel_for_each_figure_and_a_line_for_each_fault() -> None:
    series = {"memory & more": FLAT, "latency": [float(at) for at in range(len(FLAT))]}
    verdicts = [growth_of(name, values, BOUND) for name, values in series.items()]
    times = [float(at) for at in range(len(FLAT))]
    drawn = Xml.fromstring(picture(times, series, [(3.0, "Redis wiped"), (9.0, "worker killed")], verdicts))  # noqa: S314 - Our own.
    space = "{http://www.w3.org/2000/svg}"
    assert len(drawn.findall(f"{space}polyline")) == 2
    assert len(drawn.findall(f"{space}line")) == 4
    words = [text.text for text in drawn.findall(f"{space}text")]
    assert "memory & more" in words
    assert [word for word in words if word in ("flat", "grows")] == ["flat", "grows"]
