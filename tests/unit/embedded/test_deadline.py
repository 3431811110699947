from itertools import count

import pytest

from fencepost.embedded._deadline import Deadline


def test_waiting_ends_as_soon_as_the_condition_holds() -> None:
    looks = count(1)
    Deadline(60, "the third look succeeds").wait(lambda: next(looks) == 3)
    assert next(looks) == 4


def test_a_missed_deadline_names_the_condition() -> None:
    with pytest.raises(TimeoutError, match=r"Timed out after 0 s waiting until the sun rises\."):
        Deadline(0, "the sun rises").wait(lambda: False)
