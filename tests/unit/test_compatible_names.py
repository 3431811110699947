"""Each name of the compatibility profile: there while a service has it on, and absent while it is off."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute
from rich.console import Console

from fencepost import Fencepost
from fencepost.cli._doctor_checks import probe_compatible_names
from fencepost.cli._status_screen import board_screen
from fencepost.cli._status_snapshot import StatusSnapshot
from fencepost.compatible_names import CompatibleNames, OldMetric, OldSetting
from fencepost.errors import SettingsError
from fencepost.jobs._metrics import JobMetrics
from fencepost.jobs.settings import JobSettings
from fencepost.layered_settings import LayeredSettings
from fencepost.metrics import Metrics
from fencepost.outbox.settings import OutboxSettings
from fencepost.plugin import load, plugins
from fencepost.redis_streams.stream_names import NORMAL
from fencepost.settings import Settings
from fencepost_judge import _http_service as judge_http
from fencepost_judge._api import make_router
from fencepost_judge._direct_path import DirectPathSettings
from fencepost_judge._service import QUEUE, Judging
from fencepost_judge._settings import JudgeSettings
from fencepost_nonces._http_service import make_service as make_nonces
from fencepost_nonces._settings import NoncesSettings
from fencepost_orders import _http_service as orders_http
from fencepost_orders.service import Orders
from fencepost_players.service import Players

PAGE = Path(__file__).parents[2] / "docs/reference/compatible-names.md"
TABLES: dict[str, CompatibleNames] = {
    name: load(plugin.names) for name, plugin in plugins().items() if plugin.names
}
METRICS = [(service, old) for service, names in TABLES.items() for old in names.metrics]
SETTINGS = [(service, old) for service, names in TABLES.items() for old in names.settings]
URL = "postgresql://localhost/nowhere"
GIVEN = {
    "JOB_STREAM_KEY": ("tasks", "tasks"),
    "JOB_STREAM_GROUP": ("readers", "readers"),
    "JOB_STREAM_CONSUMER": ("one", "one"),
    "JOB_STREAM_MAXLEN": ("5000", 5000),
    "WORKER_ID": ("two", "two"),
    "JOB_LEASE_SEC": ("120", 120),
    "JOB_HEARTBEAT_SEC": ("7", 7),
    "JOB_RECLAIM_INTERVAL_SEC": ("9", 9),
    "JOB_RECLAIM_COUNT": ("3", 3),
    "JOB_RECLAIM_GRACE_SEC": ("4", 4),
    "OUTBOX_BATCH_SIZE": ("10", 10),
    "OUTBOX_PARALLELISM": ("2", 2),
    "OUTBOX_RETRY_MAX": ("5", 5),
    "OUTBOX_IDLE_SLEEP_MS": ("500", 0.5),
    "OUTBOX_STUCK_THRESHOLD_MIN": ("2", 120),
}
"""A value of each setting as an operator writes it, and what it means in our unit."""


def named(value: object) -> str:
    return value.name if isinstance(value, OldMetric | OldSetting) else str(value)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def client(*, on: bool) -> Fencepost:
    return Fencepost(URL, settings=Settings(compatible_names=on))


def open_service(service: str, fp: Fencepost) -> None:
    """Made as a server makes it, without a database."""
    match service:
        case "judge":
            Judging(fp, JudgeSettings())
            JobMetrics.on(fp.metrics)
        case "orders":
            Orders(fp, {})
        case "nonces":
            make_nonces(fp, NoncesSettings())
        case "players":
            Players(fp)
        case _:
            raise AssertionError(f"{service} has names, and no case here")


def sample(metrics: Metrics, old: OldMetric) -> None:
    """Count something in the metric that the name stands for."""
    source: Any = metrics.by_name[old.metric]
    labels = {label: old.where.get(label, ("some",))[0] for label in source._labelnames}
    child = source.labels(**labels) if labels else source
    match source._type:
        case "counter":
            child.inc(3)
        case "gauge":
            child.set(3)
        case _:
            child.observe(0.25)


@pytest.mark.parametrize("on", [True, False], ids=["on", "off"])
@pytest.mark.parametrize(("service", "old"), METRICS, ids=named)
def test_a_metric_is_exported_under_both_names_or_under_ours_alone(
    service: str, old: OldMetric, on: bool
) -> None:
    fp = client(on=on)
    open_service(service, fp)
    sample(fp.metrics, old)
    is_histogram = old.metric.endswith(("_seconds", "_retries"))
    ours = f"{old.metric}_count" if is_histogram else old.metric
    assert fp.metrics.value(ours) > 0
    if not on:
        assert not [name for name, _ in series(fp.metrics) if name.startswith(old.name)]
    elif is_histogram:
        assert fp.metrics.value(f"{old.name}_count") == 1
        assert fp.metrics.value(f"{old.name}_sum") == pytest.approx(0.25 * old.factor)
    else:
        assert fp.metrics.value(old.name) == 3
        labels = {key for name, labels in series(fp.metrics) if name == old.name for key in labels}
        assert labels == set(old.labels)


def series(metrics: Metrics) -> Iterator[tuple[str, dict[str, str]]]:
    return ((one.name, one.labels) for family in metrics.registry.collect() for one in family.samples)


def test_labels_that_the_old_name_lacks_are_added_up_and_values_have_their_old_names() -> None:
    fp = client(on=True)
    open_service("judge", fp)
    claims: Any = fp.metrics.by_name["fencepost_jobs_claims_total"]
    claims.labels("judge", "one", "refused", "not_owner").inc()
    claims.labels("judge", "two", "refused", "stale_attempt").inc(2)
    assert fp.metrics.value("worker_claim_total", status="refused", reason="db_claim_reject") == 3
    refused: Any = fp.metrics.by_name["fencepost_jobs_outcomes_refused_total"]
    refused.labels("judge", "one", "lease_expired").inc()
    refused.labels("judge", "one", "stale_attempt").inc()
    assert fp.metrics.value("worker_finalize_rejected_total", reason="lease_lost_or_owner_mismatch") == 1
    assert fp.metrics.value("worker_stale_attempt_total") == 1


def test_a_histogram_in_milliseconds_has_its_bounds_in_milliseconds() -> None:
    fp = client(on=True)
    open_service("judge", fp)
    seconds: Any = fp.metrics.by_name["fencepost_judge_finish_seconds"]
    seconds.observe(0.2)
    bucket = "worker_finalize_latency_ms_bucket"
    bounds = [labels["le"] for name, labels in series(fp.metrics) if name == bucket]
    assert (bounds[0], bounds[1], bounds[-2], bounds[-1]) == ("1.0", "2.5", "10000.0", "+Inf")
    assert fp.metrics.value(bucket, le="100.0") == 0
    assert fp.metrics.value(bucket, le="250.0") == 1


def test_a_counter_without_labels_is_there_from_the_start() -> None:
    fp = client(on=True)
    open_service("judge", fp)
    assert "worker_stale_attempt_total 0.0" in fp.metrics.page().body.decode()


def test_the_library_alone_exports_no_such_name() -> None:
    fp = client(on=True)
    JobMetrics.on(fp.metrics)
    page = fp.metrics.page().body.decode()
    assert not [old.name for _, old in METRICS if re.search(rf"^{old.name}\b", page, re.MULTILINE)]


@dataclass
class Setting:
    """A setting of the code that one of the old names stands for."""

    owner: type[LayeredSettings]
    field: str

    @classmethod
    def of(cls, old: OldSetting) -> "Setting":
        [found] = [
            cls(owner, field)
            for owner in (JobSettings, OutboxSettings)
            for field, source in owner.sources().items()
            if source.env == old.env
        ]
        return found

    def read(self, environ: dict[str, str], old: OldSetting | None, file: str = "") -> Any:
        path = Path("config.yaml")
        path.write_text(file)
        return getattr(self.owner.load(environ, path, also=[old] if old else ()), self.field)


@pytest.mark.parametrize(("service", "old"), SETTINGS, ids=named)
def test_a_setting_is_read_under_both_names_and_ours_comes_first(service: str, old: OldSetting) -> None:
    setting = Setting.of(old)
    given, means = GIVEN[old.name]
    default = setting.read({}, None)
    assert means != default
    assert setting.read({old.name: given}, old) == pytest.approx(means)
    assert setting.read({old.name: given}, None) == default, f"{service}: off"
    section, _, key = old.file.partition(".")
    file = f"{section}:\n" + "".join(
        f"{'  ' * (depth + 1)}{part}:{'' if depth < key.count('.') else ' ' + given}\n"
        for depth, part in enumerate(key.split("."))
    )
    assert setting.read({}, old, file) == pytest.approx(means)
    ours = str(default) if default is not None else "ours"
    assert setting.read({old.env: ours, old.name: given}, old) == (default or "ours")


def test_an_error_names_the_variable_that_was_set_and_what_it_means_in_ours() -> None:
    names = TABLES["orders"].settings
    with pytest.raises(SettingsError) as caught:
        OutboxSettings.load({"OUTBOX_IDLE_SLEEP_MS": "0.1"}, also=names)
    assert str(caught.value) == (
        "OUTBOX_IDLE_SLEEP_MS is '0.1' (environment), which is OUTBOX_IDLE_SEC=0.0001; "
        "allowed: a number from 0.001 to 600."
    )
    with pytest.raises(SettingsError, match=r"OUTBOX_STUCK_THRESHOLD_MIN is 'soon' \(environment\); allowed"):
        OutboxSettings.load({"OUTBOX_STUCK_THRESHOLD_MIN": "soon"}, also=names)


class _Seen(Exception):
    """What a service was made with."""


def caught(module: Any, attribute: str, make: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    def see(*arguments: Any, **options: Any) -> Any:
        raise _Seen(arguments, options)

    monkeypatch.setattr(module, attribute, see)
    with pytest.raises(_Seen) as seen:
        make()
    return seen.value.args


@pytest.mark.parametrize("on", [True, False], ids=["on", "off"])
def test_the_judge_reads_the_old_names_of_its_settings(on: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOB_LEASE_SEC", "120")
    monkeypatch.setenv("OUTBOX_ENABLED", "false")
    fp = client(on=on)
    _, options = caught(judge_http, "Judging", lambda: judge_http.make_service(fp), monkeypatch)
    if on:
        assert options["job_settings"].lease_seconds == 120
        assert options["direct_settings"] == DirectPathSettings(outbox_enabled=False)
    else:
        assert (options["job_settings"], options["direct_settings"]) == (None, None)


@pytest.mark.parametrize("on", [True, False], ids=["on", "off"])
def test_orders_read_the_old_names_of_their_settings(on: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTBOX_BATCH_SIZE", "7")
    fp = client(on=on)
    arguments, _ = caught(orders_http, "Orders", lambda: orders_http.make_service(fp), monkeypatch)
    assert arguments[3].batch_size == (7 if on else 32)


@pytest.mark.parametrize(
    ("on", "explicit", "stream", "group"),
    [
        (True, {}, "deepoj:jobs", "deepoj:workers"),
        (True, {"stream_key": "mine"}, "mine", "deepoj:workers"),
        (False, {}, "fencepost:{jobs}:q:judge", "fencepost:workers"),
    ],
)
def test_the_judge_has_the_stream_of_its_profile(
    on: bool, explicit: dict[str, Any], stream: str, group: str
) -> None:
    fp = Fencepost(URL, settings=Settings(compatible_names=on), job_settings=JobSettings(**explicit))
    settings = Judging(fp, JudgeSettings()).job_settings
    assert (settings.stream(QUEUE, NORMAL), settings.stream_group) == (stream, group)


def test_the_profile_is_one_setting() -> None:
    assert Settings.load({}).compatible_names
    assert not Settings.load({"COMPATIBLE_NAMES": "false"}).compatible_names
    Path("config.yaml").write_text("compatible_names: false\n")
    assert not Settings.load({}).compatible_names


def test_no_name_stands_for_two_things() -> None:
    names = [old.name for _, old in METRICS] + [old.name for _, old in SETTINGS]
    assert len(set(names)) == len(names)
    files = [old.file for _, old in SETTINGS]
    assert len(set(files)) == len(files)


def test_the_page_lists_every_name_and_no_other() -> None:
    listed = {
        line.split("`")[1].removeprefix("fencepost.")
        for line in PAGE.read_text().splitlines()
        if line.startswith("| `")
    }
    declared = {old.name for _, old in METRICS} | {old.name for _, old in SETTINGS}
    declared |= {source.env for source in DirectPathSettings.sources().values()}
    declared |= {name for names in TABLES.values() for name in (*names.views, *names.redis_keys.values())}
    assert listed == declared | {"task:payload:<job_id>"}


@pytest.mark.parametrize(("service", "old"), [*METRICS, *SETTINGS], ids=named)
def test_the_page_says_what_the_name_stands_for(service: str, old: OldMetric | OldSetting) -> None:
    [row] = [line for line in PAGE.read_text().splitlines() if line.startswith(f"| `{old.name}` |")]
    _, _, second, ours, _ = (part.strip() for part in row.split("|"))
    match old:
        case OldMetric():
            assert re.findall(r"`(\w+)`", second) == list(old.labels)
            assert ours.startswith(f"`{old.metric}`")
        case OldSetting():
            assert second == f"`{old.file}`"
            assert ours.startswith(f"`{old.env}`")


@pytest.mark.parametrize("on", [True, False], ids=["on", "off"])
def test_doctor_says_whether_the_profile_is_on_and_what_it_ignores(on: bool) -> None:
    environ = {"JOB_LEASE_SEC": "30", "OUTBOX_RETRY_MAX": ""}
    first, *ignored = probe_compatible_names(Settings(compatible_names=on), environ)
    assert first.name == "compatible names"
    if on:
        assert first.detail.startswith("on in judge, nonces, orders, players;")
        assert ignored == []
    else:
        assert first.detail == "off: COMPATIBLE_NAMES is false"
        assert [(one.name, one.remedy) for one in ignored] == [
            ("JOB_LEASE_SEC", "Set JOBS_LEASE_SEC instead, or COMPATIBLE_NAMES=true.")
        ]


@pytest.mark.parametrize(("services", "said"), [(("judge", "orders"), "judge, orders"), ((), "off")])
def test_status_says_whether_the_profile_is_on(services: tuple[str, ...], said: str) -> None:
    board = StatusSnapshot(datetime.now(UTC), (), (), (), 0, (), (), compatible_names=services)
    console = Console(record=True, width=100)
    console.print(board_screen(board))
    assert f"Compatible names: {said}\n" in console.export_text()
    assert board.as_json()["compatible_names"] == services


@pytest.mark.parametrize("on", [True, False], ids=["on", "off"])
@pytest.mark.parametrize("name", TABLES["judge"].own)
def test_a_name_that_is_also_our_own_is_there_in_any_case(name: str, on: bool) -> None:
    settings = {source.env for source in JudgeSettings.sources().values()}
    router = make_router(Judging(client(on=on), JudgeSettings()), app_token=None)
    found = [route for route in router.routes if isinstance(route, APIRoute)]
    routes = {f"{method} {route.path}" for route in found for method in route.methods or ()}
    assert name in settings | routes
    assert f"`{name}`" in PAGE.read_text()
