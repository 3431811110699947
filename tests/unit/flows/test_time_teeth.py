"""The tests of windows, joins and silences can fail: bugs are planted, and they see them."""

from typing import Any

import pytest

from fencepost.flows import _merge as merge_module
from fencepost.flows._plan import KeyedStage
from fencepost.flows._record import Record
from fencepost.flows._watermarks import Watermarks
from fencepost.flows._window_steps import IntervalJoin, Known
from fencepost.flows._windows import Firing
from fencepost.testing import FlowBroken
from tests.unit.flows import test_arrival_windows as arrival_windows
from tests.unit.flows import test_idleness as idleness
from tests.unit.flows import test_windows_and_joins as windows_and_joins

CASES = 60


def test_a_silence_that_is_not_stored_is_decided_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(self: Watermarks, sender: str) -> None:
        """The frontier says nothing of a silence."""

    monkeypatch.setattr(Watermarks, "stored_floor", nothing)

    with pytest.raises(FlowBroken):
        idleness.test_a_crash_changes_nothing_of_what_silence_decided(None)


def test_records_merged_by_their_own_time_fire_by_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    def own_time(record: Record) -> float:
        return float("-inf") if record[2] is None else float(record[2])

    monkeypatch.setattr(merge_module, "known_at", own_time)
    monkeypatch.setattr(Known, "take", taken_as_they_came)

    with pytest.raises(AssertionError):
        windows_and_joins.test_early_and_late_firings_say_what_was_known_by_then("both", CASES)


def test_a_window_that_forgets_its_updates_calls_records_late(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed_at_its_end(self: Firing, time: float) -> float:
        return self.window.last_end(time)

    monkeypatch.setattr(Firing, "last_end", closed_at_its_end)

    with pytest.raises(AssertionError):
        windows_and_joins.test_early_and_late_firings_say_what_was_known_by_then("late", CASES)


def test_records_that_an_interval_drops_too_early_miss_their_partners(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = IntervalJoin.__init__

    def impatient(self: IntervalJoin, window: Any, *more: Any) -> None:
        whole(self, window, *more)
        self._kept_for = (window.after_seconds, window.before_seconds)  # pyright: ignore[reportPrivateUsage]

    monkeypatch.setattr(IntervalJoin, "__init__", impatient)

    with pytest.raises(AssertionError):
        windows_and_joins.test_interval_joins_have_every_pair_and_what_is_alone("inner", CASES)


def test_branches_that_are_not_put_in_order_miss_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Known, "take", taken_as_they_came)

    with pytest.raises(AssertionError):
        windows_and_joins.test_branches_of_one_stream_are_joined_in_the_order_of_time(CASES)


def test_a_clock_that_goes_back_opens_windows_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def tick(self: KeyedStage, now: float) -> None:
        for step in self._steps:  # pyright: ignore[reportPrivateUsage]
            await step.tick(now)

    monkeypatch.setattr(KeyedStage, "tick", tick)

    with pytest.raises(AssertionError):
        arrival_windows.test_windows_have_what_was_processed_within_them("tumbling", CASES)


def taken_as_they_came(self: Any) -> Any:
    came, self._records = self._records, []
    return [(record, port) for _, port, _, record in came]
