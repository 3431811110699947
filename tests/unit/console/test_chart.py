"""From figures to geometry."""

import re
from datetime import UTC, datetime, timedelta
from importlib.resources import files

import pytest

from fencepost_server.console._chart import HEIGHT, STYLES, TOP, bar, ceiling, draw, figure, growth, largest
from fencepost_server.web.formatting import duration

START = datetime(2030, 1, 1, tzinfo=UTC)


def times(count: int) -> list[datetime]:
    return [START + timedelta(minutes=number) for number in range(count)]


@pytest.mark.parametrize(
    ("most", "top"), [(0, 1), (0.3, 0.4), (1, 1), (1.5, 2), (3, 4), (7, 8), (9, 10), (41, 80), (1e6, 1e6)]
)
def test_a_scale_ends_at_a_round_number_that_nothing_exceeds(most: float, top: float) -> None:
    assert ceiling(most) == pytest.approx(top)


def test_the_highest_figure_is_at_the_top_and_zero_at_the_bottom() -> None:
    chart = draw("t", "", times(3), {"a": [0, 5, 10]})
    assert chart.lines[0].path.startswith(f"M0.0 {HEIGHT - TOP:.1f}")
    assert chart.lines[0].path.endswith(f"L640.0 {TOP:.1f}")
    assert [tick.label for tick in chart.ticks] == ["0", "2.5", "5", "7.5", "10"]


@pytest.mark.parametrize("most", [0.001, 0.02, 0.3, 1, 10, 41, 100, 900, 1e3, 1e4, 1e6])
def test_every_tick_says_where_it_is(most: float) -> None:
    ticks = draw("t", "", times(1), {"a": [most]}).ticks
    told = [float(tick.label.replace(",", "")) for tick in ticks]
    assert told == pytest.approx([ceiling(most) * step / 4 for step in range(5)])


@pytest.mark.parametrize(
    ("value", "told"),
    [(0, "0"), (0.016_67, "0.0167"), (-0.07, "-0.07"), (22.8, "22.8"), (999.7, "1,000"), (62_498, "62,498")],
)
def test_a_figure_is_told_without_powers_of_ten(value: float, told: str) -> None:
    assert figure(value, "") == told


@pytest.mark.parametrize(
    ("measured", "goal", "drawn"),
    [(0.3, 0.6, (50, 100)), (1.2, 0.6, (100, 50)), (-0.07, 0.15, (0, 100)), (0, 0, (0, 0)), (3, 0, (100, 0))],
)
def test_a_bar_tells_how_far_from_its_goal_a_figure_is(
    measured: float, goal: float, drawn: tuple[float, float]
) -> None:
    assert bar(measured, goal) == drawn


def test_a_moment_without_a_figure_lifts_the_pen() -> None:
    path = draw("t", "", times(4), {"a": [1, None, 1, 1]}).lines[0].path
    assert path.count("L") == 1


def test_nothing_to_draw_is_said() -> None:
    assert draw("t", "", times(2), {"a": [None, None]}).is_empty
    assert draw("t", "", [], {}).is_empty
    assert not draw("t", "", times(1), {"a": [0]}).is_empty


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0, "0 s"), (0.000_5, "500 µs"), (0.0032, "3.2 ms"), (2.5, "2.5 s"), (75, "1 min 15 s"), (7200, "2 h"),
     (90_000, "1 d 1 h")],
)  # fmt: skip
def test_durations_are_told_as_people_do(seconds: float, told: str) -> None:
    assert duration(seconds) == told


def test_counters_become_what_came_between_two_looks() -> None:
    looks = [{"a": 5, "b": 0}, None, {"a": 7, "b": 0}, {"a": 2, "b": 0}]
    assert growth(looks) == {"a": [None, None, 2.0, 2.0]}, (
        "one that went back began anew; one at rest is left out"
    )


def test_no_two_lines_of_a_chart_look_the_same() -> None:
    css = (files("fencepost_server.web") / "static" / "app.css").read_text()
    styles = dict(re.findall(r"^\.(line\d+) \{ ([^}]+) \}", css, re.MULTILINE))
    # By the dash alone, for who sees no colours.
    assert len({re.sub(r"stroke: [^;]+;", "", style) for style in styles.values()}) == STYLES
    reasons = {f"reason-{number}": [float(number), None] for number in range(9)}
    shown = largest(reasons)
    assert list(shown) == ["reason-8", "reason-7", "reason-6", "reason-5", "reason-4", "other"]
    assert shown["other"] == [6.0, None]
    assert {f"line{line.number}" for line in draw("t", "", times(2), shown).lines} == set(styles)
    with pytest.raises(AssertionError):
        draw("t", "", times(2), reasons)
