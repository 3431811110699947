"""Probes a running Redis or Valkey: reachable, new enough, and not evicting keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from fencepost.cli.database_reader import first_line
from fencepost.cli.findings import Finding, FindingState
from fencepost.cli.probes.programs import version_in
from fencepost.redaction import redact_url
from fencepost.redis_streams.connection import connect_sync
from fencepost.redis_streams.errors import RedisError

AREA = "Redis"
REDIS_MIN = (7,)


def probe_redis(url: str, *, seconds: float = 5.0) -> list[Finding]:
    try:
        with connect_sync(url, reply_seconds=seconds) as client:
            info = cast("Mapping[str, Any]", client.info())  # pyright: ignore[reportUnknownMemberType]
    except (RedisError, OSError, ValueError) as error:
        detail = f"{redact_url(url)} cannot be reached: {first_line(error)}"
        remedy = "Start it, or correct REDIS_URL. Work continues without it, more slowly."
        return [Finding(AREA, "connection", FindingState.LACKING, detail, remedy, required=True)]
    return [judge_version(info, url), judge_eviction(info)]


def judge_version(info: Mapping[str, Any], url: str) -> Finding:
    name, shown = ("Valkey", str(info["valkey_version"])) if "valkey_version" in info else ("Redis", "")
    shown = shown or str(info.get("redis_version", "unknown"))
    detail = f"{name} {shown} at {redact_url(url)}"
    if version_in(shown) < REDIS_MIN:
        return Finding(
            AREA,
            "connection",
            FindingState.LACKING,
            detail,
            "Use Redis 7 or Valkey 8, or newer.",
            required=True,
        )
    return Finding(AREA, "connection", FindingState.OK, detail, required=True)


def judge_eviction(info: Mapping[str, Any]) -> Finding:
    policy, limit = str(info.get("maxmemory_policy", "noeviction")), int(info.get("maxmemory", 0))
    if policy == "noeviction" or limit == 0:
        return Finding(AREA, "eviction", FindingState.OK, "keys are never evicted")
    return Finding(
        AREA,
        "eviction",
        FindingState.DEGRADED,
        f"maxmemory-policy is {policy}: entries may vanish, and the sweep drives their jobs again later",
        "Set maxmemory-policy to noeviction.",
    )
