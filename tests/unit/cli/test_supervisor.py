"""When a worker process that ended is started again."""

from fencepost.cli._supervisor import RAN_ITS_JOBS, STEADY_SECONDS, next_start


def test_a_process_that_has_run_its_jobs_is_replaced_without_a_delay() -> None:
    assert next_start(RAN_ITS_JOBS, lived_seconds=0.1, falls=7) == (0, 0.0)


def test_the_delay_grows_while_a_process_keeps_ending_whatever_its_exit_code() -> None:
    falls, waits = 0, list[float]()
    for code in (0, 1, -9, 0, 0, 0, 0, 0):
        falls, seconds = next_start(code, lived_seconds=1, falls=falls)
        waits.append(seconds)
    assert waits == [0.5, 1, 2, 4, 8, 16, 30, 30]


def test_a_process_that_ran_for_long_starts_with_the_shortest_delay() -> None:
    assert next_start(-9, lived_seconds=STEADY_SECONDS + 1, falls=7) == (1, 0.5)
