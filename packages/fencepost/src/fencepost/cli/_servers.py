"""`fencepost url`, `fencepost psql`, `fencepost grant`: the running servers, and a user's own tables."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fencepost.cli.exit_codes import ExitCode, UserError
from fencepost.cli.terminal import JsonOption, answer, answer_json

if TYPE_CHECKING:
    from fencepost.cli.database_reader import Reader
    from fencepost.server_addresses import ServerAddresses

Which = Literal["database", "redis", "http", "viewer", "owner"]
Role = Literal["service", "viewer", "owner"]


def url(
    which: Annotated[Which, typer.Argument(metavar="[database|redis|http|viewer|owner]")] = "database",
    json_output: JsonOption = False,
) -> None:
    """Print an address of the running system: of DATABASE_URL, or of the `fencepost up` in this directory.

    \b
    Examples:
      export DATABASE_URL=$(fencepost url)           as the services connect
      fencepost url redis
      fencepost url http                             the console and the services
      fencepost url owner                            for migrations of your own tables
      fencepost url --json                           all of them

    Exits with 3 when nothing runs here, with 4 when the system has no such address.
    """
    addresses = _addresses(_running())
    if json_output:
        answer_json(addresses)
        return
    address = addresses[which]
    if address is None:
        raise UserError(f"The running system has no address of this kind: {which}.", ExitCode.NOT_FOUND)
    answer(address)


def psql(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PSQL ARGUMENTS]...", help="For psql; after -- if they begin with a dash."),
    ] = None,
    role: Annotated[
        Role, typer.Option("--as", help="As the services, as a viewer, or as the owner of the tables.")
    ] = "service",
) -> None:
    """Open psql on the running database: of DATABASE_URL, or of the `fencepost up` in this directory.

    \b
    Examples:
      fencepost psql
      fencepost psql -- -c "select name, next_tick from fencepost.schedules"
      fencepost psql --as owner -- -f tables.sql     to make tables; then: fencepost grant TABLE

    Exits with 3 when nothing runs here; otherwise with psql's own exit code.
    """
    place = _running()
    program = _psql_program()
    addresses = {"service": place.service_url, "viewer": place.viewer_url, "owner": place.migration_url}
    sys.stdout.flush()
    os.execv(program, [program, addresses[role], *(arguments or ())])  # noqa: S606 - No shell; its own program.


def grant(
    tables: Annotated[list[str], typer.Argument(metavar="TABLE", help="Your tables, with schema if needed.")],
    json_output: JsonOption = False,
) -> None:
    """Let jobs and services use your own tables: they connect as a role that owns none.

    \b
    The application role may then read and write the tables and use their sequences; the read-only role may
    read them. Run again for a table that was made anew. MIGRATION_DATABASE_URL names the owner's login.

    \b
    Examples:
      fencepost grant image
      fencepost grant shop.order shop.order_line

    Exits with 4 when there is no such table; then nothing is granted.
    """
    from fencepost.cli.database_reader import reading  # noqa: PLC0415 - Loads psycopg, not needed by --help.
    from fencepost.settings import Settings  # noqa: PLC0415

    place = _running()
    seconds = Settings.load().connect_seconds
    with (
        reading(place.migration_url, seconds=seconds, remedy=place.remedy) as connection,
        connection.transaction(),
    ):
        granted = [_grant(connection, table) for table in tables]
    if json_output:
        answer_json(granted)
    else:
        answer("\n".join(f"table {table}: granted to fencepost_app and fencepost_read" for table in granted))


def _grant(connection: Reader, named: str) -> str:
    from psycopg import sql  # noqa: PLC0415 - As above.

    found = connection.execute(
        "select c.oid, n.nspname, c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace"
        " where c.oid = to_regclass(%s) and c.relkind in ('r', 'p', 'v', 'm', 'f')",
        (named,),
    ).fetchone()
    if found is None:
        raise UserError(f"There is no table {named}. Nothing was granted.", ExitCode.NOT_FOUND)
    oid, schema, table = found
    if schema == "fencepost":
        raise UserError(
            f"{named} is a table of Fencepost: its functions write it, and no role may go around them. "
            "Nothing was granted."
        )
    owned = connection.execute(
        "select n.nspname, s.relname from pg_depend d join pg_class s on s.oid = d.objid and s.relkind = 'S'"
        " join pg_namespace n on n.oid = s.relnamespace"
        " where d.classid = 'pg_class'::regclass and d.refobjid = %s and d.deptype in ('a', 'i')",
        (oid,),
    ).fetchall()
    roles = sql.SQL("fencepost_app, fencepost_read")
    statements = [
        sql.SQL("grant usage on schema {} to {}").format(sql.Identifier(schema), roles),
        sql.SQL("grant select, insert, update, delete on {} to fencepost_app").format(
            sql.Identifier(schema, table)
        ),
        sql.SQL("grant select on {} to fencepost_read").format(sql.Identifier(schema, table)),
        *(
            sql.SQL("grant usage, select on sequence {} to fencepost_app").format(sql.Identifier(*sequence))
            for sequence in owned
        ),
    ]
    for statement in statements:
        connection.execute(statement)
    return f"{schema}.{table}"


def _running() -> ServerAddresses:
    from fencepost.server_addresses import of_this_directory  # noqa: PLC0415 - Not needed by --help.
    from fencepost.settings import Settings  # noqa: PLC0415

    return of_this_directory(Settings.load())


def _addresses(place: ServerAddresses) -> dict[Which, str | None]:
    return {
        "database": place.service_url,
        "redis": place.redis_url,
        "http": place.endpoint_url,
        "viewer": place.viewer_url,
        "owner": place.migration_url,
    }


def _psql_program() -> str:
    """psql of PATH, or of the embedded PostgreSQL."""
    from fencepost.embedded._binaries import find_postgres  # noqa: PLC0415 - As above.
    from fencepost.embedded._errors import BinaryMissingError  # noqa: PLC0415

    if on_path := shutil.which("psql"):
        return on_path
    try:
        beside = find_postgres().beside("psql")
    except BinaryMissingError:
        beside = None
    if beside is None or not os.access(beside, os.X_OK):
        raise UserError(
            "There is no psql on PATH, nor beside an embedded PostgreSQL. Install Debian's package "
            "postgresql-client, or fencepost[embedded]; `fencepost url` prints the address for other tools."
        )
    return str(beside)
