"""Probes a running PostgreSQL: version, durability, schema, and roles that cannot bypass the functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, LiteralString

from fencepost.cli.database_reader import Reader, first_line, reading
from fencepost.cli.findings import Finding, FindingState
from fencepost.errors import FencepostError
from fencepost.kernel.migrate import VERSION_QUERY, kernel
from fencepost.redaction import redact_url
from fencepost.server_addresses import ServerAddresses

AREA = "PostgreSQL"
VERSION_MIN = 150_000

# With any of these off, a power cut may lose an acknowledged commit.
DURABLE = ("fsync", "full_page_writes", "synchronous_commit")

SCHEMA_RIGHTS = """
    select bool_or(has_schema_privilege(oid, 'USAGE')), count(*) > 0
    from pg_catalog.pg_namespace where nspname = 'fencepost'
"""
STATE_TABLES_WRITABLE = """
    select c.relname
    from pg_catalog.pg_class c
    join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where n.nspname = 'fencepost' and c.relkind in ('r', 'p')
      and (has_table_privilege(c.oid, 'INSERT') or has_table_privilege(c.oid, 'UPDATE')
           or has_table_privilege(c.oid, 'DELETE') or has_table_privilege(c.oid, 'TRUNCATE'))
    order by c.relname
"""
EVICTOR = """
    select r.rolname, r.rolsuper or pg_has_role(r.oid, 'pg_signal_backend', 'USAGE'),
           current_setting('synchronous_standby_names') = '' or r.rolsuper
             or pg_has_role(r.oid, 'pg_read_all_stats', 'USAGE')
    from pg_catalog.pg_proc p
    join pg_catalog.pg_namespace n on n.oid = p.pronamespace
    join pg_catalog.pg_roles r on r.oid = p.proowner
    where n.nspname = 'fencepost' and p.proname = '_evict'
"""


def probe_postgres(server_addresses: ServerAddresses, *, seconds: float = 5.0) -> list[Finding]:
    try:
        with reading(server_addresses.service_url, seconds=seconds) as connection:
            return [*_ask_server(connection, server_addresses), *_ask_schema(connection)]
    except FencepostError as error:
        remedy = "Start the server, or correct DATABASE_URL."
        return [Finding(AREA, "connection", FindingState.LACKING, first_line(error), remedy, required=True)]


def _ask_server(connection: Reader, server_addresses: ServerAddresses) -> Iterator[Finding]:
    place = f"{redact_url(server_addresses.service_url)} (from {server_addresses.origin})"
    yield judge_version(connection.info.server_version, place)
    yield judge_durability({name: _setting(connection, name) for name in DURABLE})


def _ask_schema(connection: Reader) -> Iterator[Finding]:
    """Read from the catalog, which any role may read: missing privileges become a finding, not an error."""
    allowed, exists = _row(connection, SCHEMA_RIGHTS)
    if not exists:
        yield judge_schema(None, kernel().version)
        return
    if not allowed:
        yield judge_schema_rights(connection.info.user)
        return
    found = _row(connection, VERSION_QUERY, kernel().name)
    yield judge_schema(found[0] if found else None, kernel().version)
    yield judge_application_role(
        connection.info.user, [str(r[0]) for r in connection.execute(STATE_TABLES_WRITABLE)]
    )
    yield judge_evictor(_row(connection, EVICTOR))


def _row(connection: Reader, query: LiteralString, *parameters: object) -> tuple[Any, ...]:
    return connection.execute(query, parameters).fetchone() or ()


def _setting(connection: Reader, name: str) -> str:
    return str(_row(connection, "select current_setting(%s)", name)[0])


def judge_version(number: int, place: str) -> Finding:
    """`number` as libpq gives it: 180004 is 18.4."""
    detail = f"{number // 10_000}.{number % 10_000} at {place}"
    if number < VERSION_MIN:
        return Finding(
            AREA, "connection", FindingState.LACKING, detail, "Use PostgreSQL 15 or newer.", required=True
        )
    return Finding(AREA, "connection", FindingState.OK, detail, required=True)


def judge_durability(settings: Mapping[str, str]) -> Finding:
    off = [name for name, value in settings.items() if value == "off"]
    if off:
        return Finding(
            AREA,
            "durability",
            FindingState.LACKING,
            f"{', '.join(off)} off: acknowledged commits can be lost in a power failure",
            f"Set {' and '.join(f'{name} = on' for name in off)}.",
            required=True,
        )
    return Finding(AREA, "durability", FindingState.OK, "an acknowledged commit is on disk", required=True)


def judge_schema(found: int | None, wanted: int) -> Finding:
    name = "schema"
    if found is None:
        return Finding(
            AREA, name, FindingState.LACKING, "not there", "Run `fencepost migrate`.", required=True
        )
    if found < wanted:
        detail = f"version {found}, and this code needs {wanted}"
        return Finding(AREA, name, FindingState.LACKING, detail, "Run `fencepost migrate`.", required=True)
    if found > wanted:
        detail = f"version {found}, and this code knows {wanted}"
        return Finding(
            AREA,
            name,
            FindingState.DEGRADED,
            detail,
            "Upgrade this installation of fencepost.",
            required=True,
        )
    return Finding(AREA, name, FindingState.OK, f"version {found}", required=True)


def judge_schema_rights(role: str) -> Finding:
    remedy = f"As its owner: grant fencepost_app to {role} (services), or fencepost_read (to look)."
    return Finding(
        AREA, "schema", FindingState.LACKING, f"exists, but {role} may not use it", remedy, required=True
    )


def judge_application_role(role: str, writable: Sequence[str]) -> Finding:
    """A role that may write state tables can bypass every fence."""
    name = "service role"
    if not writable:
        return Finding(
            AREA, name, FindingState.OK, f"{role} cannot write a state table, only call the functions"
        )
    more = f" and {len(writable) - 3} more" if len(writable) > 3 else ""
    return Finding(
        AREA,
        name,
        FindingState.DEGRADED,
        f"{role} may write {', '.join(writable[:3])}{more} directly, around every fence",
        "Give the services a login that is only a member of fencepost_app; keep the other for migrations.",
    )


def judge_evictor(row: tuple[Any, ...]) -> Finding:
    """Whether the owner of `_evict` may end backends. If not, a holder that hangs blocks its successor."""
    name = "eviction"
    owner, may_signal, sees_waits = row or ("nobody", False, False)
    if may_signal and not sees_waits:
        return Finding(
            AREA,
            name,
            FindingState.DEGRADED,
            f"{owner} cannot see which backends wait for a synchronous standby, so it ends none: a holder "
            "that hangs inside COPY blocks its successor",
            f"As a superuser: grant pg_read_all_stats to {owner}.",
        )
    if may_signal:
        return Finding(AREA, name, FindingState.OK, f"{owner} may end a backend that blocks a takeover")
    return Finding(
        AREA,
        name,
        FindingState.DEGRADED,
        f"{owner} may not end a backend: a holder that hangs inside COPY blocks its successor",
        f"As a superuser: grant pg_signal_backend to {owner}.",
    )
