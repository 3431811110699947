"""The settings of every Fencepost process: the two servers, the log and the metrics.

Each variable, its place in config.yaml, its default and what is allowed: docs/reference/settings.md.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from fencepost._cluster_url import ClusterUrl, speaks_of_a_cluster
from fencepost._sentinel_url import SentinelUrl, speaks_of_sentinels
from fencepost.layered_settings import From, LayeredSettings
from fencepost.redaction import each_host


def _check_scheme(url: str, *schemes: str) -> str:
    beginnings = " or ".join(f"{scheme}://" for scheme in schemes)
    try:
        parts = urlsplit(url)
        _ = parts.port  # Reading it is what validates it.
    except ValueError:
        raise ValueError(f"a URL beginning with {beginnings}, its password percent-encoded") from None
    if parts.scheme not in schemes:
        raise ValueError(f"a URL beginning with {beginnings}")
    return url


def _postgres_url(url: str) -> str:
    """The address may name several servers: libpq connects to the first that fits target_session_attrs."""
    for one in each_host(url):
        _check_scheme(one, "postgresql", "postgres")
    return url


def _redis_url(url: str) -> str:
    if speaks_of_sentinels(url):
        return _read_by(SentinelUrl.read, url, "redis+sentinel://host:26379,host:26379/service/0")
    if speaks_of_a_cluster(url):
        return _read_by(ClusterUrl.read, url, "redis+cluster://host:6379,host:6379")
    return _check_scheme(url, "redis", "rediss", "unix")


def _read_by(read: Callable[[str], object], url: str, form: str) -> str:
    try:
        read(url)
    except ValueError:
        raise ValueError(f"a URL like {form}") from None
    return url


def is_http_url(url: str) -> bool:
    """Whether requests can be sent there."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def pairs_of(text: str) -> list[tuple[str, str]]:
    """The pairs of a setting like `shop=https://a/hook; audit=https://b`, in order."""
    parts = (part.partition("=") for part in text.split(";") if part.strip())
    return [(name.strip(), value.strip()) for name, _, value in parts]


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


PostgresUrl = Annotated[str, AfterValidator(_postgres_url)]
RedisUrl = Annotated[str, AfterValidator(_redis_url)]
LogLevel = Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(_lower)]
Recover = Annotated[Literal["auto", "refuse"], BeforeValidator(_lower)]
LogFormat = Annotated[Literal["console", "json"], BeforeValidator(_lower)]
Seconds = Annotated[float, Field(ge=0.1, le=3600)]
Positive = Annotated[float, Field(gt=0, le=86_400)]
Keep = Annotated[float, Field(gt=0, le=3_153_600_000)]
Port = Annotated[int, Field(ge=0, le=65_535)]


class Settings(LayeredSettings):
    """One instance for the whole process. Without `database_url`, the embedded pair is used."""

    database_url: Annotated[PostgresUrl | None, From("DATABASE_URL", "database.url", secret=True)] = None
    migration_database_url: Annotated[
        PostgresUrl | None, From("MIGRATION_DATABASE_URL", "database.migration_url", secret=True)
    ] = None
    listen_database_url: Annotated[
        PostgresUrl | None, From("LISTEN_DATABASE_URL", "database.listen_url", secret=True)
    ] = None
    standby_database_url: Annotated[
        PostgresUrl | None, From("STANDBY_DATABASE_URL", "database.standby_url", secret=True)
    ] = None
    pool_min: Annotated[int, Field(ge=0, le=1000), From("DATABASE_POOL_MIN", "database.pool_min")] = 1
    pool_max: Annotated[int, Field(ge=1, le=1000), From("DATABASE_POOL_MAX", "database.pool_max")] = 10
    pool_wait_seconds: Annotated[Seconds, From("DATABASE_POOL_WAIT_SEC", "database.pool_wait_sec")] = 10.0
    connect_seconds: Annotated[Seconds, From("DATABASE_CONNECT_SEC", "database.connect_sec")] = 5.0
    prepared_statements: Annotated[
        bool, From("DATABASE_PREPARED_STATEMENTS", "database.prepared_statements")
    ] = True
    recover: Annotated[Recover, From("DATABASE_RECOVER", "database.recover")] = "auto"
    redis_url: Annotated[RedisUrl | None, From("REDIS_URL", "redis.url", secret=True)] = None
    redis_reply_seconds: Annotated[Seconds, From("REDIS_REPLY_SEC", "redis.reply_sec")] = 5.0
    data_directory: Annotated[Path, From("FENCEPOST_DATA_DIR", "embedded.directory")] = Path(".fencepost")
    compatible_names: Annotated[bool, From("COMPATIBLE_NAMES", "compatible_names")] = True
    log_level: Annotated[LogLevel, From("LOG_LEVEL", "log.level")] = "info"
    log_format: Annotated[LogFormat, From("LOG_FORMAT", "log.format")] = "console"
    metrics_address: Annotated[str, From("METRICS_ADDRESS", "metrics.address")] = "127.0.0.1"
    metrics_port: Annotated[Port, From("METRICS_PORT", "metrics.port")] = 0
    history_keep_seconds: Annotated[Keep, From("HISTORY_KEEP_SEC", "history.keep_sec")] = 86_400
    message_keep_seconds: Annotated[Keep, From("OUTBOX_KEEP_SEC", "outbox.keep_sec")] = 604_800
    key_keep_seconds: Annotated[
        float, Field(ge=1, le=31_536_000), From("IDEMPOTENCY_KEEP_SEC", "idempotency.keep_sec")
    ] = 86_400.0
    key_clean_seconds: Annotated[
        float, Field(ge=0.05, le=3600), From("IDEMPOTENCY_CLEAN_SEC", "idempotency.clean_sec")
    ] = 5.0
    key_clean_batch: Annotated[
        int, Field(ge=1, le=1_000_000), From("IDEMPOTENCY_CLEAN_BATCH", "idempotency.clean_batch")
    ] = 10_000
    key_lag_alert_seconds: Annotated[
        float, Field(ge=1, le=31_536_000), From("IDEMPOTENCY_LAG_ALERT_SEC", "idempotency.lag_alert_sec")
    ] = 300.0

    @model_validator(mode="after")
    def _pool_has_room(self) -> Self:
        if self.pool_min > self.pool_max:
            raise ValueError(
                f"DATABASE_POOL_MIN is {self.pool_min} and DATABASE_POOL_MAX is {self.pool_max}; "
                "allowed: a minimum that is not above the maximum"
            )
        return self

    @property
    def migration_url(self) -> str | None:
        """The URL for migrations: a separate one, because the services' role may not change the schema."""
        return self.migration_database_url or self.database_url

    @property
    def listen_url(self) -> str | None:
        """The URL for LISTEN: a direct one, because a pooler in transaction mode drops the subscription."""
        return self.listen_database_url or self.database_url
