"""Settings of the judge."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from fencepost.layered_settings import From, LayeredSettings
from fencepost_server.accounts._oidc_settings import WebAddress, check_whole, role_pairs

RoleWord = Literal["contestant", "jury", "admin"]


class JudgeSettings(LayeredSettings):
    """The judge's settings in one process."""

    slots: Annotated[int, Field(ge=2, le=256), From("JUDGE_SLOTS", "judge.slots")] = max(
        2, os.cpu_count() or 2
    )
    parallel_tests: Annotated[
        int, Field(ge=1, le=64), From("JUDGE_PARALLEL_TESTS", "judge.parallel_tests")
    ] = min(64, max(1, (os.cpu_count() or 2) // 2))
    agent: Annotated[bool, From("JUDGE_AGENT", "judge.agent")] = True
    cgroup: Annotated[Literal["auto", "none"], From("JUDGE_CGROUP", "judge.cgroup")] = "auto"
    stdout_limit_bytes: Annotated[
        int, Field(ge=4096, le=1 << 30), From("JUDGE_STDOUT_LIMIT_BYTES", "judge.stdout_limit_bytes")
    ] = 262_144
    stderr_limit_bytes: Annotated[
        int, Field(ge=4096, le=1 << 30), From("JUDGE_STDERR_LIMIT_BYTES", "judge.stderr_limit_bytes")
    ] = 1_048_576
    source_max_bytes: Annotated[
        int, Field(ge=1, le=1 << 20), From("JUDGE_SOURCE_MAX_BYTES", "judge.source_max_bytes")
    ] = 131_072
    submits_per_minute: Annotated[
        float, Field(gt=0, le=100_000), From("JUDGE_SUBMITS_PER_MINUTE", "judge.submits_per_minute")
    ] = 12
    submit_burst: Annotated[
        int, Field(ge=1, le=100_000), From("JUDGE_SUBMIT_BURST", "judge.submit_burst")
    ] = 10
    custom_run_time_ms: Annotated[
        int, Field(ge=10, le=600_000), From("JUDGE_CUSTOM_RUN_TIME_MS", "judge.custom_run_time_ms")
    ] = 5000
    custom_run_memory_kb: Annotated[
        int, Field(ge=4096, le=1 << 26), From("JUDGE_CUSTOM_RUN_MEMORY_KB", "judge.custom_run_memory_kb")
    ] = 262_144
    custom_run_keep_seconds: Annotated[
        int,
        Field(ge=10, le=2_592_000),
        From("JUDGE_CUSTOM_RUN_KEEP_SECONDS", "judge.custom_run_keep_seconds"),
    ] = 900
    lease_seconds: Annotated[float, Field(ge=1, le=86_400), From("JUDGE_LEASE_SEC", "judge.lease_sec")] = 30.0
    """How long a judge that has died keeps a submission."""
    tries: Annotated[int, Field(ge=1, le=100), From("JUDGE_TRIES", "judge.tries")] = 4
    """Tries of a submission that are charged before its verdict is SE."""
    errors_in_a_row: Annotated[
        int, Field(ge=0, le=1000), From("JUDGE_ERRORS_IN_A_ROW", "judge.errors_in_a_row")
    ] = 3
    """System errors in a row after which a judge is disabled; 0: never."""
    errors_window: Annotated[
        int, Field(ge=1, le=1000), From("JUDGE_ERRORS_WINDOW", "judge.errors_window")
    ] = 20
    errors_share: Annotated[float, Field(ge=0, le=1), From("JUDGE_ERRORS_SHARE", "judge.errors_share")] = 0.5
    """The share of system errors among its last `errors_window` judgings at which a judge is disabled; 0:
    none."""
    cache_max_bytes: Annotated[
        int, Field(ge=1 << 20), From("JUDGE_CACHE_MAX_BYTES", "judge.cache_max_bytes")
    ] = 1 << 30
    languages: Annotated[
        str, Field(pattern=r"^[a-z0-9+_, -]+$"), From("JUDGE_LANGUAGES", "judge.languages")
    ] = "all"
    languages_dir: Annotated[Path | None, From("JUDGE_LANGUAGES_DIR", "judge.languages_dir")] = None
    """Definitions of languages of one's own."""
    outer_uid: Annotated[int, Field(ge=1, le=0x7FFFFFFF), From("JUDGE_OUTER_UID", "judge.outer_uid")] = 65_533
    cores: Annotated[
        str,
        Field(pattern=r"^(any|auto|[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*)$"),
        From("JUDGE_CORES", "judge.cores"),
    ] = "any"
    """The processors that boxes are pinned to, in turn."""
    session_hours: Annotated[
        float, Field(ge=0.1, le=720), From("JUDGE_SESSION_HOURS", "judge.session_hours")
    ] = 12.0
    idle_minutes: Annotated[
        float, Field(ge=1, le=43_200), From("JUDGE_IDLE_MINUTES", "judge.idle_minutes")
    ] = 240.0
    streams_max: Annotated[int, Field(ge=1, le=100_000), From("JUDGE_STREAMS_MAX", "judge.streams_max")] = (
        2000
    )
    streams_per_user: Annotated[
        int, Field(ge=1, le=100_000), From("JUDGE_STREAMS_PER_USER", "judge.streams_per_user")
    ] = 20
    secure_cookies: Annotated[bool, From("JUDGE_SECURE_COOKIES", "judge.secure_cookies")] = False
    store: Annotated[str | Path, From("JUDGE_STORE", "judge.store")] = ".fencepost/judge"
    s3_endpoint: Annotated[
        str | None, Field(pattern=r"^https?://[^\s@]+$"), From("JUDGE_S3_ENDPOINT", "judge.s3_endpoint")
    ] = None
    s3_region: Annotated[
        str | None, Field(min_length=1, max_length=64), From("JUDGE_S3_REGION", "judge.s3_region")
    ] = None
    s3_access_key: Annotated[
        str | None, Field(min_length=1), From("JUDGE_S3_ACCESS_KEY", "judge.s3_access_key", secret=True)
    ] = None
    s3_secret_key: Annotated[
        str | None, Field(min_length=1), From("JUDGE_S3_SECRET_KEY", "judge.s3_secret_key", secret=True)
    ] = None
    store_wait_minutes: Annotated[
        float, Field(ge=0, le=1440), From("JUDGE_STORE_WAIT_MINUTES", "judge.store_wait_minutes")
    ] = 30.0
    discovery: Annotated[
        str,
        Field(pattern=r"^(kernel|etcds?://\S+)$"),
        From("JUDGE_DISCOVERY", "judge.discovery", secret=True),
    ] = "kernel"
    discovery_lease_seconds: Annotated[
        int,
        Field(ge=3, le=3600),
        From("JUDGE_DISCOVERY_LEASE_SECONDS", "judge.discovery_lease_seconds"),
    ] = 15
    python: Annotated[Literal["python", "pypy"], From("JUDGE_PYTHON", "judge.python")] = "python"
    """The language of the jury's `.py` files."""
    workspace: Annotated[Path | None, From("JUDGE_WORKSPACE", "judge.workspace")] = None
    public_url: Annotated[
        str | None, Field(pattern=r"^https?://[^\s/@]+$"), From("JUDGE_PUBLIC_URL", "judge.public_url")
    ] = None
    """Where browsers reach the judge: the provider of single sign-on redirects to it."""
    oidc_issuer: Annotated[WebAddress | None, From("JUDGE_OIDC_ISSUER", "judge.oidc.issuer")] = None
    oidc_client_id: Annotated[str | None, From("JUDGE_OIDC_CLIENT_ID", "judge.oidc.client_id")] = None
    oidc_client_secret: Annotated[
        str | None, From("JUDGE_OIDC_CLIENT_SECRET", "judge.oidc.client_secret", secret=True)
    ] = None
    oidc_name_claim: Annotated[
        str, Field(min_length=1), From("JUDGE_OIDC_NAME_CLAIM", "judge.oidc.name_claim")
    ] = "email"
    oidc_role_claim: Annotated[
        str, Field(min_length=1), From("JUDGE_OIDC_ROLE_CLAIM", "judge.oidc.role_claim")
    ] = "groups"
    oidc_roles: Annotated[
        dict[str, RoleWord], BeforeValidator(role_pairs), From("JUDGE_OIDC_ROLES", "judge.oidc.roles")
    ] = Field(default_factory=dict)
    oidc_else_role: Annotated[RoleWord | None, From("JUDGE_OIDC_ELSE_ROLE", "judge.oidc.else_role")] = None

    @model_validator(mode="after")
    def _single_sign_on_is_whole(self) -> Self:
        check_whole(self, "JUDGE")
        return self

    @property
    def offered(self) -> frozenset[str] | None:
        """The languages that may be offered, by name; None for every language found."""
        if self.languages.strip() == "all":
            return None
        return frozenset(name.strip() for name in self.languages.split(","))

    @property
    def workspace_root(self) -> Path:
        """Scratch space. The path includes the user, because another user's folder cannot be used."""
        return self.workspace or Path(tempfile.gettempdir()) / f"fencepost-judge-{os.getuid()}"
