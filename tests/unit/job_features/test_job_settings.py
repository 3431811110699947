"""The environment names that operators know, and their defaults."""

from pathlib import Path

import pytest

from fencepost.errors import SettingsError
from fencepost.jobs.settings import JobSettings

DEFAULTS = {
    "OUTBOX_ENABLED": True,
    "JOB_STREAM_KEY": "deepoj:jobs",
    "JOB_STREAM_GROUP": "deepoj:workers",
    "JOB_STREAM_CONSUMER": None,
    "WORKER_ID": None,
    "JOB_STREAM_MAXLEN": 200_000,
    "JOB_PAYLOAD_TTL_SEC": 86_400,
    "JOB_LEASE_SEC": 60,
    "JOB_HEARTBEAT_SEC": 20,
    "JOB_RECLAIM_INTERVAL_SEC": 5,
    "JOB_RECLAIM_COUNT": 16,
    "JOB_RECLAIM_GRACE_SEC": 15,
}
PAGE = Path(__file__).parents[3] / "docs/reference/jobs.md"


@pytest.fixture
def no_file(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.touch()
    return path


@pytest.mark.parametrize("name", DEFAULTS)
def test_a_name_is_read_and_has_its_default(name: str, no_file: Path) -> None:
    [field] = [field for field, source in JobSettings.sources().items() if source.env == name]
    assert getattr(JobSettings.load({}, no_file), field) == DEFAULTS[name]


def test_the_environment_speaks_first_and_the_file_fills_in(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("api:\n  stream:\n    stream_maxlen: 5000\nworker:\n  stream:\n    lease_sec: 90\n")
    settings = JobSettings.load({"JOB_LEASE_SEC": "120", "OUTBOX_ENABLED": "false"}, path)
    assert (settings.stream_maxlen, settings.lease_seconds, settings.outbox_enabled) == (5000, 120, False)


def test_a_heartbeat_that_does_not_fit_is_refused(no_file: Path) -> None:
    with pytest.raises(SettingsError, match=r"JOB_HEARTBEAT_SEC is 40.* at most half the lease"):
        JobSettings.load({"JOB_HEARTBEAT_SEC": "40"}, no_file)


def test_the_reference_has_every_variable_with_its_key_and_its_default() -> None:
    page = PAGE.read_text()
    for field, source in JobSettings.sources().items():
        default = JobSettings.model_fields[field].default
        shown = "" if default is None else "true" if default is True else f"{default}"
        row = f"| `{source.env}` | `{source.file}` | {f'`{shown}`' if isinstance(default, str) else shown} |"
        assert row in page, row
