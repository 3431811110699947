"""Which processors boxes are pinned to, what doctor says of them, and how judges compare."""

import pytest

from fencepost.errors import InvalidInput
from fencepost_judge._calibration import Speed, advice, compare_judges, document
from fencepost_judge.sandbox._cores import CPU, chosen_cores, processor


class Texts(dict[str, str]):
    def text(self, path: str) -> str | None:
        return self.get(f"{CPU}/{path}" if not path.startswith("/") else path)


HYPERTHREADED = Texts(
    {f"{CPU}/cpu{n}/topology/thread_siblings_list": f"{n % 4},{n % 4 + 4}\n" for n in range(8)}
)


@pytest.mark.parametrize(
    ("said", "allowed", "cores"),
    [
        ("any", range(8), ()),
        ("auto", range(8), [0, 1, 2, 3]),
        # Of a core whose first thread belongs to others, the second.
        ("auto", [1, 4, 5], [1, 4]),
        ("2-3,6", range(8), [2, 3, 6]),
        ("3,3", range(8), [3]),
    ],
)
def test_cores_are_chosen_among_those_that_may_be_used(said: str, allowed: range, cores: list[int]) -> None:
    assert chosen_cores(said, HYPERTHREADED, allowed) == cores


@pytest.mark.parametrize(("said", "why"), [("7", "may not use"), ("2-", "no list"), ("x", "no list")])
def test_a_list_of_other_cores_is_refused(said: str, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        chosen_cores(said, HYPERTHREADED, range(4))


@pytest.mark.parametrize(
    ("texts", "turbo", "threads"),
    [
        ({"intel_pstate/no_turbo": "0\n", "smt/active": "1\n"}, True, True),
        ({"intel_pstate/no_turbo": "1\n", "smt/active": "0\n"}, False, False),
        ({"cpufreq/boost": "1\n"}, True, None),
        ({"cpufreq/boost": "0\n"}, False, None),
        ({}, None, None),
    ],
)
def test_turbo_and_threads_are_what_the_kernel_says(
    texts: dict[str, str], turbo: bool | None, threads: bool | None
) -> None:
    found = processor(Texts({f"{CPU}/{name}": text for name, text in texts.items()}))

    assert (found.turbo, found.threads) == (turbo, threads)


def measured(host: str, *times: float) -> dict[str, object]:
    return document(host, "x", [Speed(f"p{n}", time_ms, 0.0, time_ms) for n, time_ms in enumerate(times)])


def test_a_judge_that_is_slower_than_the_others_is_named() -> None:
    found = compare_judges([measured("a", 100, 200), measured("b", 104, 196), measured("c", 100, 260)])

    assert [(one.host, one.is_equal) for one in found] == [("a", True), ("b", True), ("c", False)]
    assert found[2].factors["p1"] == pytest.approx(1.3)


@pytest.mark.parametrize("said", [{}, {"speeds": [{"name": "p0", "together_ms": 0}]}, {"speeds": 3}])
def test_another_file_is_no_measurement(said: dict[str, object]) -> None:
    with pytest.raises(InvalidInput, match="calibrate --json"):
        compare_judges([measured("a", 1), said])


def test_unsteady_times_are_said_with_what_to_do() -> None:
    said = advice([Speed("steady", 100, 0.02, 101), Speed("wild", 100, 0.3, 150)])

    assert len(said) == 2
    assert all("wild" in line and "steady" not in line and "JUDGE_CORES=auto" in line for line in said)
