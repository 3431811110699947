"""Keys outlive the answers in Redis."""

import pytest

from fencepost.errors import SettingsError
from fencepost_players.mutations.settings import MutationSettings


def test_a_key_is_never_forgotten_before_its_answer() -> None:
    with pytest.raises(SettingsError, match="carries the guarantee"):
        MutationSettings.load({"IDEMPOTENCY_KEEP_SEC": "60"})
    kept = MutationSettings.load({"IDEMPOTENCY_KEEP_SEC": "60", "MUTATION_ANSWER_KEEP_SEC": "60"})
    assert kept.key_keep_seconds == 60
