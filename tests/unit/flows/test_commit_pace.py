"""When a task commits: soon while it has caught up, seldom while it is behind."""

from fencepost.flows._commit_pace import CommitPace
from fencepost.flows._settings import FlowSettings


def pace(
    settings: FlowSettings | None = None, *, groups: int | None = None, follows: bool = False
) -> CommitPace:
    return CommitPace(settings or FlowSettings(batch=1000), groups=groups, follows=follows)


def test_a_task_that_has_caught_up_commits_soon() -> None:
    made = pace()
    made.read(499)

    assert made.wait_seconds == 0.05


def test_commits_take_at_most_a_fifth_of_the_time_and_the_interval_bounds_the_wait() -> None:
    made = pace()
    made.committed(0.02)
    assert made.wait_seconds == 0.08
    made.committed(5)
    assert made.wait_seconds == 1


def test_a_task_that_is_behind_commits_by_the_interval_until_it_has_caught_up() -> None:
    made = pace()
    made.read(500)
    assert made.wait_seconds == 1
    made.read(3)
    assert made.wait_seconds == 0.05


def test_a_key_group_is_behind_with_its_share_of_a_batch() -> None:
    made = pace(groups=4)
    made.read(125)

    assert made.wait_seconds == 1


def test_an_interval_that_was_set_counts_as_it_is() -> None:
    assert pace(FlowSettings(interval_seconds=0.7)).wait_seconds == 0.7
    assert pace(FlowSettings(interval_seconds=0.01)).wait_seconds == 0.01


def test_effects_that_follow_a_commit_wait_for_the_interval() -> None:
    """Otherwise a sink of files would have twenty files a second."""
    assert pace(follows=True).wait_seconds == 1
