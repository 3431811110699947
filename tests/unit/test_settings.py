from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import Field, ValidationError

from fencepost import layered_settings
from fencepost.errors import SettingsError
from fencepost.layered_settings import From, LayeredSettings, readers
from fencepost.settings import Settings

SOURCE = Path(layered_settings.__file__).parent


class StreamSettings(LayeredSettings):
    """A service's settings."""

    stream_maxlen: Annotated[int, Field(ge=1), From("JOBS_STREAM_MAXLEN", "jobs.stream_maxlen")] = 200_000
    signing_key: Annotated[str, From("SIGNING_KEY", "api.signing_key", secret=True)]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "config.yaml"


def user_error(environ: dict[str, str], config: Path | None = None) -> str:
    with pytest.raises(SettingsError) as caught:
        Settings.load(environ, config)
    return str(caught.value)


def test_nothing_needs_to_be_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = Settings.load({})
    assert settings.database_url is None
    assert settings.metrics_address == "127.0.0.1"


def test_the_environment_wins_and_the_file_fills_what_it_leaves_out(config: Path) -> None:
    config.write_text("database:\n  pool_min: 3\n  pool_max: 7\nlog:\n  format: json\n")
    settings = Settings.load({"DATABASE_POOL_MAX": "9"}, config)
    assert (settings.pool_min, settings.pool_max, settings.log_format) == (3, 9, "json")


def test_an_empty_variable_counts_as_left_out(config: Path) -> None:
    config.write_text("log: {level: debug}\n")
    assert Settings.load({"LOG_LEVEL": ""}, config).log_level == "debug"


def test_a_key_left_blank_counts_as_left_out(config: Path) -> None:
    config.write_text("database:\nlog:\n  level:\n")
    assert Settings.load({}, config).log_level == "info"


def test_the_file_is_found_by_variable_and_then_in_the_working_directory(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config.write_text("log: {level: error}\n")
    assert Settings.load({"FENCEPOST_CONFIG": str(config)}).log_level == "error"
    monkeypatch.chdir(config.parent)
    assert Settings.load({}).log_level == "error"


def test_the_value_is_frozen() -> None:
    settings = Settings()
    with pytest.raises(ValidationError):
        settings.log_level = "debug"  # pyright: ignore[reportAttributeAccessIssue]


def test_a_wrong_value_names_the_variable_the_value_and_what_is_allowed() -> None:
    assert user_error({"DATABASE_POOL_MAX": "many"}) == (
        "DATABASE_POOL_MAX is 'many' (environment); allowed: an integer from 1 to 1000."
    )
    assert (
        user_error({"LOG_FORMAT": "xml"})
        == "LOG_FORMAT is 'xml' (environment); allowed: 'console' or 'json'."
    )


def test_a_wrong_value_in_the_file_names_the_file_and_the_key(config: Path) -> None:
    config.write_text("metrics: {port: 70000}\n")
    assert user_error({}, config) == (
        f"METRICS_PORT is '70000' ({config}, metrics.port); allowed: an integer from 0 to 65535."
    )


def test_all_that_is_wrong_is_said_at_once(config: Path) -> None:
    config.write_text("metrics: {prot: 1}\n")
    lines = user_error({"METRICS_PORT": "x", "LOG_LEVEL": "loud"}, config).splitlines()
    assert len(lines) == 3


@pytest.mark.parametrize(
    "url",
    [
        "mysql://app:s3cret@db/shop",
        "postgresql://app:s3/cret@db/shop",
        "postgresql//app:s3cret@db/shop",
        "app:s3cret@db",
        "s3cret",
    ],
)
def test_a_wrong_url_never_shows_its_password(url: str) -> None:
    said = user_error({"DATABASE_URL": url})
    assert said.startswith("DATABASE_URL is ")
    assert "postgresql://" in said
    assert "s3" not in said
    assert "cret" not in said


def test_an_address_may_name_every_node_of_a_cluster() -> None:
    url = "postgresql://app:s3cret@a:5432,b:5432,c:5433/shop?target_session_attrs=read-write"
    assert Settings.load({"DATABASE_URL": url}).database_url == url
    assert "s3cret" not in user_error({"DATABASE_URL": url.replace("5433", "high")})


def test_passwords_are_not_in_the_repr() -> None:
    settings = Settings.load({"DATABASE_URL": "postgresql://app:s3cret@db/shop"})
    assert "postgresql://app:***@db/shop" in repr(settings)
    assert "s3cret" not in f"{settings!r} {settings!s}"
    assert settings.database_url == "postgresql://app:s3cret@db/shop"


def test_two_fields_that_contradict_each_other_are_both_named() -> None:
    said = user_error({"DATABASE_POOL_MIN": "5", "DATABASE_POOL_MAX": "2"})
    assert said == (
        "DATABASE_POOL_MIN is 5 and DATABASE_POOL_MAX is 2; allowed: a minimum that is not above the maximum."
    )


def test_an_unknown_key_is_named_with_the_nearest_known_one(config: Path) -> None:
    config.write_text("database:\n  ulr: postgresql://app:s3cret@db/shop\n")
    assert user_error({}, config) == f"{config}: unknown key 'database.ulr'. Did you mean 'database.url'?"


def test_a_section_written_as_a_value_says_what_belongs_below_it(config: Path) -> None:
    config.write_text("log: json\n")
    assert user_error({}, config) == (
        f"{config}: 'log' is a section, not a value; allowed below it: log.format, log.level."
    )


@pytest.mark.parametrize("text", ["database: [\n", "- a\n- b\n", "a: b: s3cret\n", "\x00"])
def test_a_file_that_cannot_be_read_is_named_without_quoting_it(config: Path, text: str) -> None:
    config.write_text(text)
    said = user_error({}, config)
    assert str(config) in said
    assert "s3cret" not in said


def test_a_file_that_was_asked_for_must_exist(config: Path) -> None:
    assert user_error({"FENCEPOST_CONFIG": str(config)}) == (
        f"FENCEPOST_CONFIG names {config}, and there is no such file."
    )


def test_a_service_reads_its_own_names_and_paths(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layered_settings, "OWN_READERS", (*readers(), f"{__name__}:StreamSettings"))
    config.write_text("jobs:\n  stream_maxlen: 5000\nlog: {level: debug}\n")
    settings = StreamSettings.load({"SIGNING_KEY": "s3cret"}, config)
    assert settings.stream_maxlen == 5000
    assert "s3cret" not in repr(settings)


def test_a_section_of_a_plugin_that_is_not_installed_here_is_left_to_other_hosts(config: Path) -> None:
    config.write_text("coupons:\n  keep_days: 3\nlog: {level: debug}\n")
    assert Settings.load({}, config).log_level == "debug"
    config.write_text("databse:\n  url: postgresql://db/shop\n")
    assert "unknown key 'databse.url'" in user_error({}, config)


def test_one_file_serves_every_service(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("fencepost.settings")
    monkeypatch.setattr(module, "StreamSettings", StreamSettings, raising=False)
    monkeypatch.setattr(layered_settings, "OWN_READERS", (*readers(), "fencepost.settings:StreamSettings"))
    config.write_text("jobs:\n  stream_maxlen: 5000\nlog: {level: debug}\n")
    assert Settings.load({}, config).log_level == "debug"
    config.write_text("jobs:\n  straem_maxlen: 5000\n")
    assert "Did you mean 'jobs.stream_maxlen'?" in user_error({}, config)


def test_a_setting_without_a_default_says_that_it_is_missing(config: Path) -> None:
    config.write_text("")
    with pytest.raises(
        SettingsError, match=r"^SIGNING_KEY is not set \(nor 'api.signing_key' in config.yaml\)"
    ):
        StreamSettings.load({}, config)


def test_a_field_must_say_where_it_is_read_from() -> None:
    with pytest.raises(TypeError, match=r"Careless.depth does not say where"):

        class Careless(LayeredSettings):  # pyright: ignore[reportUnusedClass]
            depth: int = 1


def test_two_fields_may_not_read_one_place() -> None:
    with pytest.raises(TypeError, match="two fields read the same source"):

        class Twins(LayeredSettings):  # pyright: ignore[reportUnusedClass]
            first: Annotated[int, From("DEPTH", "a.first")] = 1
            second: Annotated[int, From("DEPTH", "a.second")] = 1


def test_the_readers_of_the_file_do_not_contradict_each_other() -> None:
    owner: dict[str, str] = {}
    for reader in readers():
        module, _, name = reader.partition(":")
        cls: type[LayeredSettings] = getattr(importlib.import_module(module), name)
        for field, source in cls.sources().items():
            assert owner.setdefault(source.env, source.file) == source.file, f"{reader} {field}"


@pytest.mark.parametrize("reader", ["fencepost.settings:Settings", "fencepost.jobs.settings:JobSettings"])
def test_every_setting_is_used(reader: str) -> None:
    """One that nothing reads promises something that does not happen."""
    module, _, name = reader.partition(":")
    cls: type[LayeredSettings] = getattr(importlib.import_module(module), name)
    code = "".join(file.read_text(encoding="utf-8") for file in SOURCE.rglob("*.py"))

    assert [field for field in cls.sources() if not re.search(rf"\.{field}\b", code)] == []


def test_migrations_and_listen_have_urls_of_their_own_or_share() -> None:
    shared = Settings(database_url="postgresql://app@db/shop")
    assert (shared.migration_url, shared.listen_url) == (shared.database_url, shared.database_url)
    own = Settings(
        database_url="postgresql://app@pooler/shop",
        migration_database_url="postgresql://owner@db/shop",
        listen_database_url="postgresql://app@db/shop",
    )
    assert (own.migration_url, own.listen_url) == ("postgresql://owner@db/shop", "postgresql://app@db/shop")


def test_every_setting_is_in_the_reference() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/settings.md").read_text()
    for source in Settings.sources().values():
        assert f"`{source.env}`" in page
        assert f"`{source.file}`" in page
