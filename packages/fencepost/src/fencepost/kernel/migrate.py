"""Migrate a database's schema to this code's version: forward only, all or nothing.

One transaction under an advisory lock does everything: it applies the schema files that are not applied yet,
every function file again, and the grants. A failure leaves the database as it was; a second process waits and
finds nothing to do.

Each component (the kernel, the flows, and those of plugins) is a folder with `schema/NNNN_name.sql` and
`functions/*.sql`, and has its own versions. All of them live in the schema `fencepost`, under the kernel's
grants: those are made by rule, so there is no second list of grants. A schema file that was applied never
changes again; its digest is stored, and a difference is refused.

Migrate first, then roll out: a schema may be one version ahead of the code that runs on it, and never behind.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import LiteralString

import psycopg
from psycopg import sql

from fencepost.errors import (
    InvalidInput,
    MigrationFailed,
    SchemaMissing,
    SchemaTooNew,
    SchemaTooOld,
    ServerUnavailable,
    SettingsError,
)
from fencepost.plugin import broken_plugins, plugins

# Two processes that migrate one database take turns on this advisory lock.
_TURN = 0x66656E6365
KERNEL = "kernel"
_HERE = Path(__file__).parent
_GRANTS = _HERE / "grants.sql"
_FILE = re.compile(r"^(\d{4})_(\w+)\.sql$")


@dataclass(frozen=True, slots=True)
class SchemaStep:
    """One schema file."""

    version: int
    name: str
    text: str

    @property
    def digest(self) -> str:
        """SHA-256 of the step's text, which the database records."""
        return hashlib.sha256(self.text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Component:
    """A folder of schema and function files with a version of its own."""

    name: str
    steps: tuple[SchemaStep, ...]
    functions: tuple[tuple[str, str], ...]
    grants: str

    @property
    def version(self) -> int:
        """The number of the newest step."""
        return self.steps[-1].version

    @property
    def digest(self) -> str:
        """Of the files that are applied again at each migration."""
        parts = (*(part for function in self.functions for part in function), self.grants)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def title(self, step: SchemaStep) -> str:
        """The name of a step in messages: `0019_name`, after the component unless it is the kernel."""
        # Every database has the kernel, so its name is left out.
        prefix = "" if self.name == KERNEL else f"{self.name}/"
        return f"{prefix}{step.version:04}_{step.name}"

    @classmethod
    def read(cls, name: str, folder: Path) -> Component:
        """Read the steps and functions of a folder. Its step numbers have no gap."""
        files = sorted((folder / "schema").glob("*.sql"))
        steps = tuple(_read_step(file) for file in files)
        versions = [step.version for step in steps]
        assert versions == list(range(1, len(steps) + 1)), f"{name}: schema versions have a gap: {versions}"
        functions = tuple(
            (file.name, file.read_text()) for file in sorted((folder / "functions").glob("*.sql"))
        )
        return cls(name, steps, functions, _GRANTS.read_text())


@dataclass(frozen=True, slots=True)
class Installed:
    """What a database has of a component: its version, and the digest of its functions and grants."""

    version: int
    digest: str | None


@dataclass(frozen=True, slots=True)
class Migrated:
    """What a migration did: the steps it applied, and the kernel's version afterwards."""

    applied: tuple[str, ...]
    version: int


def components(only: Collection[str] = ()) -> tuple[Component, ...]:
    """Every installed component that has a schema: the kernel first, then the others by name, each after what
    it requires.

    `only` names components or plugins. The kernel is always included, because every other component uses it,
    and so is what they require.
    """
    folders = component_folders()
    if not only:
        for name, why in broken_plugins().items():
            raise SettingsError(
                f"The plugin {name!r} cannot be loaded, so its schema is not known. {why} "
                "Or name what to migrate with `--only`."
            )
        return tuple(component(name) for name in folders)
    wanted = {KERNEL}
    for name in only:
        of_plugin = tuple(plugins()[name].schemas) if name in plugins() else ()
        if name not in folders and not of_plugin:
            known = ", ".join(dict.fromkeys((*folders, *plugins())))
            raise InvalidInput(f"Unknown component {name!r}. Installed: {known}.", field="only")
        wanted.update(_required(of_plugin or (name,)))
    return tuple(component(name) for name in folders if name in wanted)


def component_folders() -> Mapping[str, Path]:
    """The folder of each component's files, in the order in which they are migrated."""
    brought = {name: folder for plugin in plugins().values() for name, folder in plugin.schemas.items()}
    folders = {KERNEL: _HERE, **{name: _HERE.parent / name for name in ("flows", "webhooks")}, **brought}
    ordered = (KERNEL, *_required(sorted(folders.keys() - {KERNEL})))
    for name in ordered:
        if name not in folders:
            raise SettingsError(
                f"An installed plugin requires the component {name!r}, which no plugin provides. Install "
                "the distribution that does."
            )
    return {name: folders[name] for name in ordered}


def _required(names: Iterable[str]) -> list[str]:
    """The components, each after those that it requires."""
    requires = {name: plugin.requires for plugin in plugins().values() for name in plugin.schemas}
    ordered: list[str] = []
    seen: set[str] = set()

    def put(name: str) -> None:
        if name not in seen:
            seen.add(name)
            for required in requires.get(name, ()):
                put(required)
            ordered.append(name)

    for name in names:
        put(name)
    return ordered


@cache
def component(name: str) -> Component:
    """One component. The kernel's is read without loading the plugins: a client needs only that."""
    return Component.read(name, _HERE if name == KERNEL else component_folders()[name])


def kernel() -> Component:
    """The kernel's own files."""
    return component(KERNEL)


def migrate(url: str, *wanted: Component) -> Migrated:
    """Migrate the database at `url`; needs a login that may create roles, or roles that exist already."""
    wanted = wanted or components()
    try:
        connection = psycopg.connect(url, autocommit=False, prepare_threshold=None)
    except psycopg.OperationalError as error:
        raise ServerUnavailable(f"PostgreSQL cannot be reached for the migration: {error}") from error
    with connection:
        try:
            _prepare_roles(connection)
            return _migrate_in(connection, wanted)
        except psycopg.errors.InsufficientPrivilege as error:
            raise MigrationFailed(_say_rights(connection, error)) from error
        except psycopg.Error as error:
            raise MigrationFailed(f"The migration failed and was rolled back: {error}") from error


def schema_version(url: str, component: str = KERNEL) -> int | None:
    """The version of the schema in the database at `url`, or None when there is none."""
    try:
        connection = psycopg.connect(url, autocommit=True, prepare_threshold=None)
    except psycopg.OperationalError as error:
        raise ServerUnavailable(f"PostgreSQL cannot be reached: {error}") from error
    with connection:
        return _installed(connection, component)


def installed(url: str) -> dict[str, Installed]:
    """The components installed in the database at `url`, by name; empty if there is no schema."""
    try:
        connection = psycopg.connect(url, autocommit=True, prepare_threshold=None)
    except psycopg.OperationalError as error:
        raise ServerUnavailable(f"PostgreSQL cannot be reached: {error}") from error
    with connection:
        for query in (INSTALLED_QUERY, INSTALLED_BEFORE_DIGESTS):
            try:
                rows = connection.execute(query).fetchall()
            except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
                continue
            return {component: Installed(int(version), digest) for component, version, digest in rows}
        return {}


def check_version(installed: int | None, component: Component | None = None) -> None:
    """Refuse a schema that this code cannot work with. One version ahead works: that is a rolling upgrade.

    A schema that is behind does not work: this code calls functions that do not exist yet.
    """
    component = component or kernel()
    if installed is None:
        what = "Fencepost schema" if component.name == KERNEL else f"schema of {component.name}"
        raise SchemaMissing(f"The database has no {what}. Run `fencepost migrate`.")
    if installed < component.version:
        raise SchemaTooOld(
            f"The database has schema version {installed} of {component.name}; this code needs "
            f"{component.version} or {component.version + 1}. Run `fencepost migrate` before you start it."
        )
    if installed > component.version + 1:
        raise SchemaTooNew(
            f"The database has schema version {installed} of {component.name}; this code works with "
            f"{component.version} or {component.version + 1}. Upgrade this process."
        )


def require(url: str, name: str) -> None:
    """Refuse a database whose schema of this component does not fit: a service calls this when it opens."""
    check_version(schema_version(url, name), component(name))


VERSION_QUERY: LiteralString = (
    "select max(version) from fencepost.schema_versions where component = %s having count(*) > 0"
)
INSTALLED_QUERY: LiteralString = """
    select v.component, max(v.version), max(d.digest) from fencepost.schema_versions v
    left join fencepost.schema_digests d on d.component = v.component group by v.component"""
INSTALLED_BEFORE_DIGESTS: LiteralString = (
    "select component, max(version), null from fencepost.schema_versions group by component"
)


def _installed(connection: psycopg.Connection, component: str) -> int | None:
    try:
        with connection.transaction():
            row = connection.execute(VERSION_QUERY, (component,)).fetchone()
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
        return None
    except psycopg.errors.InsufficientPrivilege as error:
        raise ServerUnavailable(
            "This login may not use the schema fencepost: grant it membership of fencepost_app (services) or "
            "fencepost_read (read-only)."
        ) from error
    return None if row is None else int(row[0])


def _read_step(file: Path) -> SchemaStep:
    match = _FILE.match(file.name)
    assert match is not None, f"{file.name} is not named NNNN_name.sql"
    return SchemaStep(int(match[1]), match[2], file.read_text())


def _prepare_roles(connection: psycopg.Connection) -> None:
    """Make the three group roles. They belong to the cluster, so they are made in a separate transaction."""
    for role in ("fencepost_owner", "fencepost_app", "fencepost_read"):
        with connection.transaction():
            # Roles belong to the cluster and the lock to the database, so two databases may still race.
            connection.execute("select pg_advisory_xact_lock(%s)", (_TURN,))
            raced = suppress(psycopg.errors.DuplicateObject, psycopg.errors.UniqueViolation)
            with raced, connection.transaction():
                known = connection.execute("select 1 from pg_roles where rolname = %s", (role,)).fetchone()
                if known is None:
                    connection.execute(sql.SQL("create role {} nologin").format(sql.Identifier(role)))
    _try(connection, "grant fencepost_owner to current_user")
    # The owner terminates backends that keep an expired lease. If it cannot be granted, `doctor` says so.
    _try(connection, "grant pg_signal_backend to fencepost_owner")
    # And sees whether one of them waits for a standby.
    _try(connection, "grant pg_read_all_stats to fencepost_owner")
    connection.commit()


def _say_rights(connection: psycopg.Connection, error: psycopg.Error) -> str:
    """What this login lacks, and both ways to grant it."""
    login, database = (
        sql.Identifier(name).as_string(connection) for name in (connection.info.user, connection.info.dbname)
    )
    return (
        f"The login {login} may not migrate the database {database}, and was rolled back: {error}\n"
        "Migrate as a superuser, or as the owner of the database with CREATEROLE. Or let an administrator "
        "run this once: create role fencepost_owner nologin; create role fencepost_app nologin; "
        f"create role fencepost_read nologin; grant fencepost_owner to {login}; grant create, connect on "
        f"database {database} to fencepost_owner; "
        "grant pg_signal_backend, pg_read_all_stats to fencepost_owner;"
    )


def _try(connection: psycopg.Connection, statement: LiteralString) -> None:
    try:
        with connection.transaction():
            connection.execute(statement)
    except (
        psycopg.errors.InsufficientPrivilege,
        psycopg.errors.InternalError,
        psycopg.errors.InvalidGrantOperation,
    ):
        pass


def _migrate_in(connection: psycopg.Connection, wanted: tuple[Component, ...]) -> Migrated:
    with connection.transaction():
        connection.execute("select pg_advisory_xact_lock(%s)", (_TURN,))
        _make_foundation(connection)
        applied = [title for component in wanted for title in _bring(connection, component)]
        for grants in dict.fromkeys(component.grants for component in wanted):
            _run_file(connection, "grants.sql", grants)
        return Migrated(tuple(applied), wanted[0].version)


def _bring(connection: psycopg.Connection, component: Component) -> list[str]:
    """Apply one component's missing steps, and all of its functions again."""
    known = _known(connection, component.name)
    _refuse_unknown(known, component)
    missing = [step for step in component.steps if step.version not in known]
    for step in missing:
        _apply(connection, component.name, step)
    for name, text in component.functions:
        _run_file(connection, name, text)
    if component.functions:
        connection.execute(
            "insert into fencepost.schema_digest (component, digest) values (%s, %s)"
            " on conflict (component) do update set digest = excluded.digest, applied_at = default",
            (component.name, component.digest),
        )
    return [component.title(step) for step in missing]


def _make_foundation(connection: psycopg.Connection) -> None:
    """Make the schema, its owner, and the table of migrations; then act as the owner, which cannot log in."""
    database = connection.info.dbname
    may_create = "select has_database_privilege('fencepost_owner', current_database(), 'create')"
    if connection.execute(may_create).fetchone() != (True,):
        connection.execute(
            sql.SQL("grant create, connect on database {} to fencepost_owner").format(
                sql.Identifier(database)
            )
        )
    connection.execute("set local role fencepost_owner")
    connection.execute("set local search_path = pg_catalog, fencepost, pg_temp")
    # Functions call each other across files, and the files are not ordered by dependency.
    connection.execute("set local check_function_bodies = off")
    connection.execute("create schema if not exists fencepost authorization fencepost_owner")
    connection.execute(
        """create table if not exists fencepost.migration (
             component text not null, version integer not null, name text not null, digest text not null,
             applied_at timestamptz not null default clock_timestamp(),
             constraint migration_pkey primary key (component, version))"""
    )


def _known(connection: psycopg.Connection, component: str) -> dict[int, str]:
    rows = connection.execute(
        "select version, digest from fencepost.migration where component = %s", (component,)
    )
    return {int(version): str(digest) for version, digest in rows}


def _refuse_unknown(known: dict[int, str], component: Component) -> None:
    ours = {step.version: step for step in component.steps}
    for version, digest in sorted(known.items()):
        step = ours.get(version)
        if step is None:
            raise SchemaTooNew(
                f"The database has version {max(known)} of {component.name}, this code "
                f"knows {component.version}. "
                "Migrations go forward only: run the migration of the newer code."
            )
        if step.digest != digest:
            raise MigrationFailed(
                f"{component.name} version {version} ({step.name}) differs from the one that was applied. "
                "An applied schema file must not change: add a new one."
            )


def _apply(connection: psycopg.Connection, component: str, step: SchemaStep) -> None:
    _run_file(connection, f"{step.version:04}_{step.name}.sql", step.text)
    connection.execute(
        "insert into fencepost.migration (component, version, name, digest) values (%s, %s, %s, %s)",
        (component, step.version, step.name, step.digest),
    )


def _run_file(connection: psycopg.Connection, name: str, text: str) -> None:
    try:
        # Our own files, never input; without parameters, so that one call may contain many statements.
        connection.execute(text.encode())
    except psycopg.Error as error:
        error.add_note(f"in {name}")
        raise
