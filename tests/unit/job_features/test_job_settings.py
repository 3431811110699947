"""The names of the settings of jobs, and their defaults."""

from pathlib import Path

import pytest

from fencepost.errors import SettingsError
from fencepost.jobs.settings import JobSettings

DEFAULTS = {
    "JOBS_STREAM_KEY": "fencepost:{jobs}",
    "JOBS_MAIN_QUEUE": "default",
    "JOBS_STREAM_GROUP": "fencepost:workers",
    "JOBS_STREAM_CONSUMER": None,
    "JOBS_WORKER_ID": None,
    "JOBS_STREAM_MAXLEN": 200_000,
    "JOBS_LEASE_SEC": 60,
    "JOBS_HEARTBEAT_SEC": 20,
    "JOBS_RECLAIM_INTERVAL_SEC": 5,
    "JOBS_RECLAIM_COUNT": 16,
    "JOBS_RECLAIM_GRACE_SEC": 15,
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
    path.write_text("jobs:\n  stream_maxlen: 5000\n  lease_sec: 90\n")
    settings = JobSettings.load({"JOBS_LEASE_SEC": "120"}, path)
    assert (settings.stream_maxlen, settings.lease_seconds) == (5000, 120)


def test_a_heartbeat_that_does_not_fit_is_refused(no_file: Path) -> None:
    with pytest.raises(SettingsError, match=r"JOBS_HEARTBEAT_SEC is 40.* at most half the lease"):
        JobSettings.load({"JOBS_HEARTBEAT_SEC": "40"}, no_file)


def test_the_reference_has_every_variable_with_its_key_and_its_default() -> None:
    page = PAGE.read_text()
    for field, source in JobSettings.sources().items():
        default = JobSettings.model_fields[field].default
        shown = "" if default is None else "true" if default is True else f"{default}"
        row = f"| `{source.env}` | `{source.file}` | {f'`{shown}`' if isinstance(default, str) else shown} |"
        assert row in page, row
