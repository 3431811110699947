"""What released versions say to the database, recorded: the other side of a rolling upgrade.

While an upgrade rolls, processes of the version before run on the new schema. Their code is not here any
more, so every statement of theirs is kept as data, by component and version. Each release records its own:

    python -m tests.integration.kernel.released COMMIT
"""

import ast
import io
import json
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
from psycopg.pq import ExecStatus

from fencepost.embedded import Database, PostgresServer
from fencepost.kernel.migrate import KERNEL, Component, migrate

RECORD = Path(__file__).with_name("released_statements.json")
_BEGINS = re.compile(r"\s*(select|with)\b.*\bfencepost\.", re.IGNORECASE | re.DOTALL)
_PLACE = re.compile(r"%s|%%")
_VOID = "2278"
_ASIDE = {"fencepost_torture", "testing", "embedded"}
"""Packages that bring their own servers, and so never meet another version's schema."""


Said = dict[str, str]
"""Statements, each with the columns of its answer."""


def recorded() -> dict[str, dict[str, Said]]:
    """By component, then by version."""
    known: dict[str, dict[str, Said]] = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    return known


def answered(connection: psycopg.Connection, statement: str) -> str | None:
    """The columns that a statement answers; None when it is not understood. It is planned, and not run."""
    numbers = iter(range(1, 100))
    text = _PLACE.sub(lambda found: "%" if found[0] == "%%" else f"${next(numbers)}", statement)
    wire = connection.pgconn
    if wire.prepare(b"asked", text.encode()).status != ExecStatus.COMMAND_OK:
        return None
    told = wire.describe_prepared(b"asked")
    connection.execute("deallocate asked")
    columns = [(_decoded(told.fname(n)), _type_name(told.ftype(n))) for n in range(told.nfields)]
    # What answered nothing may answer something by now.
    return ", ".join(f"{name} {kind}" for name, kind in columns if kind != _VOID)


def _decoded(name: bytes | None) -> str:
    return (name or b"?").decode()


def _type_name(oid: int) -> str:
    known = psycopg.postgres.types.get(oid)
    return str(oid) if known is None else known.name if known.oid == oid else f"{known.name}[]"


def statements(source: Path) -> dict[str, set[str]]:
    """What the code under `source`, the folder of all distributions, may say, by component.

    A file belongs to the nearest folder above it that has a schema, and to the kernel when there is none.
    """
    said: dict[str, set[str]] = {}
    for file in sorted(source.rglob("*.py")):
        if _ASIDE.isdisjoint(file.relative_to(source).parts):
            owner = next((folder for folder in file.parents if (folder / "schema").is_dir()), None)
            said.setdefault(_name(owner) if owner else KERNEL, set()).update(_selects(file.read_text()))
    return said


def _name(folder: Path) -> str:
    return folder.name.removeprefix("fencepost_")


def _selects(code: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _BEGINS.match(node.value):
            yield " ".join(node.value.split())


def _components(source: Path) -> list[Component]:
    folders = {_name(schema.parent): schema.parent for schema in source.rglob("schema") if schema.is_dir()}
    # The services publish topics, so what knows topics comes before them.
    names = (KERNEL, *sorted(folders.keys() - {KERNEL}, key=lambda name: (name != "webhooks", name)))
    return [Component.read(name, folders[name]) for name in names]


def record(commit: str) -> None:
    """Add what the code of a commit says, and its own schema understands, under its own versions."""
    packed = subprocess.run(["git", "archive", commit, "packages"], check=True, stdout=subprocess.PIPE).stdout
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
            tar.extractall(folder, filter="data")
        source = Path(folder, "packages")
        with PostgresServer(Path(folder, "postgres"), ephemeral=True) as server:
            database = Database(server, "released")
            database.create()
            known, said_by = recorded(), statements(source)
            migrate(database.admin_url, *(components := _components(source)))
            with database.connect_admin() as connection:
                for component in components:
                    answers = {said: answered(connection, said) for said in said_by[component.name]}
                    known.setdefault(component.name, {})[str(component.version)] = {
                        said: answer for said, answer in answers.items() if answer is not None
                    }
    RECORD.write_text(json.dumps(known, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    record(sys.argv[1])
