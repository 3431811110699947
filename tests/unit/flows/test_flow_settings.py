"""The environment names of workers of flows: read, bounded, documented, and listened to."""

from pathlib import Path

import pytest

from fencepost.errors import SettingsError
from fencepost.flows._settings import FlowSettings

PAGE = Path(__file__).parents[3] / "docs/reference/settings.md"
# A value of each that is allowed and not its default, and one that is refused.
VALUES = {
    "FLOW_LEASE_SEC": ("30", "0"),
    "FLOW_HEARTBEAT_SEC": ("1.5", "86401"),
    "FLOW_CHECKPOINT_INTERVAL_SEC": ("0.25", "0"),
    "FLOW_CHECKPOINT_RECORDS": ("77", "0"),
    "FLOW_BATCH": ("123", "0"),
    "FLOW_CHANNEL_LENGTH": ("8", "1"),
    "FLOW_DRAIN_SEC": ("0", "-1"),
    "FLOW_BALANCE_SEC": ("4", "0"),
    "FLOW_KEEP_CHECKPOINTS": ("9", "0"),
    "FLOW_REDIS_CONNECTIONS": ("12", "3"),
    "FLOW_STATE_MEMORY_MB": ("64", "0"),
    "FLOW_WORKERS_MAX": ("3", "5000"),
}


@pytest.fixture
def no_file(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.touch()
    return path


def test_these_are_all_of_them() -> None:
    assert {source.env for source in FlowSettings.sources().values()} == {*VALUES, "FLOW_STATE_DIR"}


@pytest.mark.parametrize("name", VALUES)
def test_a_variable_is_read_and_bounded(name: str, no_file: Path) -> None:
    allowed, refused = VALUES[name]
    [field] = [field for field, source in FlowSettings.sources().items() if source.env == name]
    default = getattr(FlowSettings.load({}, no_file), field)

    found = getattr(FlowSettings.load({name: allowed}, no_file), field)

    assert found == float(allowed) != default
    with pytest.raises(SettingsError, match=name):
        FlowSettings.load({name: refused}, no_file)


def test_the_file_fills_in_and_the_environment_speaks_first(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("flows:\n  batch: 50\n  lease_sec: 60\n")

    settings = FlowSettings.load({"FLOW_BATCH": "70"}, path)

    assert (settings.batch, settings.lease_seconds) == (70, 60)


def test_a_heartbeat_that_does_not_fit_the_lease_is_refused(no_file: Path) -> None:
    with pytest.raises(SettingsError, match=r"FLOW_HEARTBEAT_SEC is 6.* at most a third of the lease"):
        FlowSettings.load({"FLOW_HEARTBEAT_SEC": "6"}, no_file)


def test_the_reference_has_every_variable_with_its_key_and_its_default() -> None:
    page = PAGE.read_text()
    for field, source in FlowSettings.sources().items():
        row = f"| `{source.env}` | `{source.file}` | {FlowSettings.model_fields[field].default} |"
        assert row in page, row
