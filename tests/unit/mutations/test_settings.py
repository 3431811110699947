"""Keys outlive the answers in Redis."""

import pytest

from fencepost.errors import SettingsError
from fencepost.settings import Settings
from fencepost_players.mutations.settings import MutationSettings


def test_keys_are_kept_for_a_day_in_the_library_and_for_an_hour_by_players_unless_it_is_set() -> None:
    assert Settings.load({}).key_keep_seconds == 86_400
    assert MutationSettings.load({}).key_keep_seconds == 3600
    week = {"IDEMPOTENCY_KEEP_SEC": "604800"}
    assert Settings.load(week).key_keep_seconds == MutationSettings.load(week).key_keep_seconds == 604_800


def test_a_key_is_never_forgotten_before_its_answer() -> None:
    with pytest.raises(SettingsError, match="carries the guarantee"):
        MutationSettings.load({"IDEMPOTENCY_KEEP_SEC": "60"})
    kept = MutationSettings.load({"IDEMPOTENCY_KEEP_SEC": "60", "MUTATION_ANSWER_KEEP_SEC": "60"})
    assert kept.key_keep_seconds == 60
